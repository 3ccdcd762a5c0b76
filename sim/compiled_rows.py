"""Rows of the compiled core to the columns of `sim.records`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sim.records import GAP_COLUMNS, REQUEST_COLUMNS, STEP_COLUMNS

if TYPE_CHECKING:
    from sim._core._native import Chunk

_STEPS = (
    "start_s",
    "end_s",
    "num_tokens",
    "num_decodes",
    "num_requests",
    "decode_context_tokens",
    "num_running",
    "num_waiting",
    "kv_blocks_used",
    "num_emitted",
    "num_first_tokens",
    "num_gaps",
    "num_preempted",
    "num_finished",
    "num_cached_tokens",
)
_REQUESTS = (
    "request_id",
    "arrival_s",
    "priority",
    "num_prompt_tokens",
    "target_output_tokens",
    "num_output_tokens",
    "state",
    "first_scheduled_s",
    "first_token_s",
    "last_token_s",
    "num_cached_tokens",
    "num_readmission_cached_tokens",
    "num_preemptions",
    "num_preempted_tokens",
    "num_scheduled_tokens",
    "num_computed_tokens",
)
_GAPS = ("step", "request_id", "gap_s")

# By the core's status of a request, in the order of its enum.
_STATES = np.array(["unfinished"] * 3 + ["finished", "finished", "aborted", "unfinished"], object)
_REASONS = np.array(["", "", "", "stop", "length", "", ""], object)


_Built = dict[str, npt.NDArray[Any]]


def step_columns(replica: int, first_step: int, chunk: Chunk | None) -> _Built:
    """Steps of one replica from number `first_step` on."""
    columns = _columns(_STEPS, STEP_COLUMNS, chunk)
    num_steps = len(columns["end_s"])
    columns["replica"] = np.full(num_steps, replica, STEP_COLUMNS["replica"])
    columns["step"] = np.arange(first_step, first_step + num_steps)
    columns["num_prefill_tokens"] = columns["num_tokens"] - columns["num_decodes"]
    return _typed(columns, STEP_COLUMNS)


def request_columns(replica: int, chunk: Chunk | None) -> _Built:
    """Requests of one replica, in the order in which they ended."""
    columns = _columns(_REQUESTS, REQUEST_COLUMNS | {"state": np.int64}, chunk)
    num_requests = len(columns["state"])
    status = columns["state"]
    columns["state"], columns["reason"] = _STATES[status], _REASONS[status]
    columns["replica"] = np.full(num_requests, replica)
    for name in REQUEST_COLUMNS:
        if name not in columns:  # of speculative decoding, which the core does not do
            columns[name] = np.zeros(num_requests, np.int64)
    return _typed(columns, REQUEST_COLUMNS)


def gap_columns(replica: int, chunk: Chunk | None) -> _Built:
    """Irregular gaps of one replica."""
    columns = _columns(_GAPS, GAP_COLUMNS, chunk)
    columns["replica"] = np.full(len(columns["gap_s"]), replica)
    return _typed(columns, GAP_COLUMNS)


def _columns(names: tuple[str, ...], dtypes: dict[str, Any], chunk: Chunk | None) -> _Built:
    """The core's cells, uncopied; they have eight bytes each."""
    if chunk is None:
        return {name: np.empty(0, dtypes[name]) for name in names}
    count, cells = chunk
    columns = zip(names, cells, strict=True)
    return {name: np.frombuffer(column, dtypes[name], count) for name, column in columns}


def _typed(columns: _Built, dtypes: dict[str, Any]) -> _Built:
    return {name: columns[name].astype(dtype, copy=False) for name, dtype in dtypes.items()}
