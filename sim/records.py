"""Flat rows of a run as they come: requests, steps and irregular token gaps.

Rows are tuples while they are few and columns once they are many, so that a long run keeps eight
bytes a figure, until `hand_over` takes them away in their final order. The column names and
meanings are the contract with `metrics`, `checks`, `plots` and the run folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sim.run_result import Columns
from sim.sim_request import SimRequest
from sim.time_split import SPLIT_COLUMNS

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

REQUEST_COLUMNS: dict[str, Any] = {
    "request_id": np.int64,
    "replica": np.int32,  # -1: rejected at arrival
    "arrival_s": np.float64,
    "priority": np.int64,
    "num_prompt_tokens": np.int64,
    "target_output_tokens": np.int64,  # what the trace says
    "num_output_tokens": np.int64,  # what was generated
    "state": object,  # finished, rejected, aborted, unfinished
    "reason": object,  # why it ended so; empty while unfinished
    "first_scheduled_s": np.float64,
    "first_token_s": np.float64,
    "last_token_s": np.float64,
    "num_cached_tokens": np.int64,  # prefix hit at the first admission
    "num_readmission_cached_tokens": np.int64,  # hits at later admissions, summed
    "num_preemptions": np.int64,
    "num_preempted_tokens": np.int64,  # progress lost, summed over preemptions
    "num_rejected_tokens": np.int64,  # drafts computed and taken back
    "num_draft_tokens": np.int64,  # drafts verified, padding not counted
    "num_accepted_tokens": np.int64,  # of those, accepted
    "num_verifications": np.int64,  # steps that verified drafts
    "num_scheduled_tokens": np.int64,  # computed over its whole life
    "num_computed_tokens": np.int64,  # progress at the end
}

DRAFT_COLUMNS = frozenset(
    {"num_rejected_tokens", "num_draft_tokens", "num_accepted_tokens", "num_verifications"}
)

STEP_COLUMNS: dict[str, Any] = {
    "replica": np.int32,
    "step": np.int64,  # from 0, a replica
    "start_s": np.float64,  # the batch begins on the device
    "end_s": np.float64,  # its results are known
    "num_tokens": np.int64,
    "num_prefill_tokens": np.int64,  # tokens in pieces of more than one token
    "num_decodes": np.int64,  # pieces of one token
    "num_requests": np.int64,  # scheduled in the step
    "decode_context_tokens": np.int64,  # KV entries read by the pieces of one token
    "num_running": np.int64,  # after schedule
    "num_waiting": np.int64,  # after schedule
    "kv_blocks_used": np.int64,  # after schedule
    "num_emitted": np.int64,  # tokens that requests got
    "num_first_tokens": np.int64,
    "num_gaps": np.int64,  # gaps of exactly end_s - the replica's previous end_s
    "num_preempted": np.int64,  # by this step, and by empty ones just before it
    "num_finished": np.int64,
    "num_cached_tokens": np.int64,  # prefix hits taken at admissions of this step
}

VARIED_STEP_COLUMNS = frozenset({"step", "decode_context_tokens", "kv_blocks_used"})
"""Counts that differ from one step to the next; the others mostly stay as they were."""

GAP_COLUMNS: dict[str, Any] = {
    "replica": np.int32,
    "step": np.int64,
    "request_id": np.int64,
    "gap_s": np.float64,
}

_ROWS_A_CHUNK = 1 << 16


class Table:
    """Rows of fixed columns. `rows` takes tuples; call `pack` now and then, or `extend`."""

    def __init__(self, columns: dict[str, Any]) -> None:
        self._dtypes = columns
        self._chunks: list[Columns] = []
        self.rows: list[tuple[Any, ...]] = []

    def append(self, row: tuple[Any, ...]) -> None:
        """Add one row, its values in the order of the columns."""
        self.rows.append(row)
        if len(self.rows) >= _ROWS_A_CHUNK:
            self.pack()

    def extend(self, columns: Columns) -> None:
        """Add many rows, given as columns."""
        self.pack()
        self._chunks.append(
            {name: np.asarray(columns[name], dtype) for name, dtype in self._dtypes.items()}
        )

    def pack(self) -> None:
        """Turn the tuples gathered so far into columns."""
        if self.rows:
            self._chunks.append(_to_columns(self.rows, self._dtypes))
            self.rows = []

    @property
    def num_rows(self) -> int:
        """Rows that wait to be taken."""
        return len(self.rows) + sum(len(next(iter(c.values()))) for c in self._chunks)

    def take(self) -> list[Columns]:
        """Take all rows away, as pieces in the order in which they came."""
        self.pack()
        chunks, self._chunks = self._chunks, []
        return chunks

    def joined(self, chunks: Sequence[Columns]) -> Columns:
        """Pieces of this table as one, in the order given."""
        if not chunks:
            return _to_columns([], self._dtypes)
        if len(chunks) == 1:
            return chunks[0]
        return {name: np.concatenate([chunk[name] for chunk in chunks]) for name in self._dtypes}


class LeapRow(NamedTuple):
    """Steps in which `num_requests` running requests got one token each, and nothing else happened.

    `first_step` is the number of the first, `context_tokens` the KV entries read in it;
    `num_finished` requests ended with the last. The instants have one element a step. Before the
    leap `num_blocks_before` KV blocks were in use; step i takes `block_cycle[i % block_size]` more.
    """

    replica: int
    first_step: int
    num_requests: int
    context_tokens: int
    num_waiting: int
    num_finished: int
    starts_s: FloatArray
    ends_s: FloatArray
    num_blocks_before: int
    block_cycle: Sequence[int]


class StepTable(Table):
    """Steps, one by one or as leaps: decode steps that differ only in time, context and blocks."""

    def __init__(self) -> None:
        super().__init__(STEP_COLUMNS)
        self._leaps: list[LeapRow] = []
        self._num_steps_in_leaps = 0

    def append_leap(self, leap: LeapRow) -> None:
        """Add the steps of a leap."""
        self._leaps.append(leap)
        self._num_steps_in_leaps += len(leap.ends_s)
        if self._num_steps_in_leaps >= _ROWS_A_CHUNK:
            self.pack()

    @property
    def num_rows(self) -> int:
        """Steps that wait to be taken."""
        return super().num_rows + self._num_steps_in_leaps

    def pack(self) -> None:
        """Turn the rows and leaps gathered so far into columns."""
        super().pack()
        if self._leaps:
            self._chunks.append(_spell_out(self._leaps))
            self._leaps = []
            self._num_steps_in_leaps = 0


def _spell_out(leaps: list[LeapRow]) -> Columns:
    """Leaps as one row a step."""
    fields = list(zip(*leaps, strict=True))
    starts, ends, blocks_before, cycles = fields[6:]
    counts = np.array([len(leap_ends) for leap_ends in ends])
    lasts = np.cumsum(counts) - 1
    index = np.arange(lasts[-1] + 1) - np.repeat(lasts + 1 - counts, counts)
    replica, step, size, context, waiting = (np.repeat(f, counts) for f in fields[:5])
    finished = np.zeros(len(index), np.int64)
    finished[lasts] = fields[5]
    none = np.zeros(len(index), np.int64)
    columns = {
        "replica": replica,
        "step": step + index,
        "start_s": np.concatenate(starts),
        "end_s": np.concatenate(ends),
        "num_tokens": size,
        "num_prefill_tokens": none,
        "num_decodes": size,
        "num_requests": size,
        "decode_context_tokens": context + index * size,
        "num_running": size,
        "num_waiting": waiting,
        "kv_blocks_used": _blocks_used(blocks_before, cycles, index, counts),
        "num_emitted": size,
        "num_first_tokens": none,
        "num_gaps": size,
        "num_preempted": none,
        "num_finished": finished,
        "num_cached_tokens": none,
    }
    return {name: columns[name].astype(dtype) for name, dtype in STEP_COLUMNS.items()}


def _blocks_used(
    blocks_before: Sequence[int],
    cycles: Sequence[Sequence[int]],
    index: IntArray,
    counts: IntArray,
) -> IntArray:
    """Blocks in use after each step: those before its leap, and what the leap took up to it."""
    within = np.cumsum(np.array(cycles), axis=1)
    leap = np.repeat(np.arange(len(counts)), counts)
    num_cycles, place = np.divmod(index, within.shape[1])
    used: IntArray = np.array(blocks_before)[leap] + num_cycles * within[leap, -1]
    used += within[leap, place]
    return used


class Records:
    """The three tables of a run."""

    def __init__(self, *, explain: bool = False) -> None:
        self._explain = explain
        self.requests = Table(REQUEST_COLUMNS | SPLIT_COLUMNS if explain else REQUEST_COLUMNS)
        self.steps = StepTable()
        self.gaps = Table(GAP_COLUMNS)

    def add_request(self, request: SimRequest, replica: int, state: str, reason: str) -> None:
        """Add a request's row; with the split of its time if that is recorded."""
        row = request.to_row(replica, state, reason)
        self.requests.append((*row, *request.split.parts_s) if self._explain else row)


def _to_columns(rows: Iterable[tuple[Any, ...]], dtypes: dict[str, Any]) -> Columns:
    values = list(zip(*rows, strict=True)) or [()] * len(dtypes)
    return {
        name: np.array(column, dtype)
        for (name, dtype), column in zip(dtypes.items(), values, strict=True)
    }
