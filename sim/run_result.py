"""What a run hands over: its settings, its flat rows, and what a reader needs to judge them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt

Columns = Mapping[str, npt.NDArray[Any]]
"""A table: columns of equal length by name. Times are simulated seconds; NaN = never happened."""

STATES = ("finished", "rejected", "aborted", "unfinished")
"""Every way in which a request can end a run; each request is in exactly one."""


@dataclass(frozen=True, slots=True)
class ReplicaInfo:
    """The limits that one replica ran under, with vLLM's names.

    `num_gpu_blocks` counts the null block, as vLLM's log line does; `num_gpu_blocks_origin` says
    where the number came from. `synchronous`: no step begins before the last one's results are in;
    `host_overhead`: it begins later than it is scheduled.
    """

    num_gpu_blocks: int
    num_gpu_blocks_origin: str
    block_size: int
    max_num_seqs: int
    max_num_batched_tokens: int
    synchronous: bool = True
    host_overhead: bool = False

    @property
    def usable_blocks(self) -> int:
        """Blocks that can hold tokens: all but the null block (vLLM's block 0)."""
        return self.num_gpu_blocks - 1


@dataclass(frozen=True, slots=True)
class Slo:
    """Limits that a request must meet, in seconds, each at most; None: no limit."""

    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None


@dataclass(frozen=True, slots=True)
class RunInfo:
    """What is known of a run beside its rows.

    `replicas` by replica id. `cost` is the cost model's provenance as plain JSON values: `kind`,
    `label` (the line for the table), `calibrated`, `details`. `partial`: stopped before its end.
    `one_token_per_emission`: no step gives a request two tokens (no speculative decoding).
    `load`: what decided when requests were sent: "open" (the trace's times), "closed" (a client's
    next after its last was answered) or "sessions" (a turn after the one before it).
    `decides_as`: whose scheduler the decisions are those of, with its release.
    """

    replicas: tuple[ReplicaInfo, ...]
    cost: Mapping[str, Any]
    slo: Slo = Slo()
    partial: bool = False
    warnings: tuple[str, ...] = ()
    one_token_per_emission: bool = True
    load: str = "open"
    decides_as: str = ""


@dataclass(frozen=True, slots=True)
class RunResult:
    """A run: the resolved config, a row a request, a row a step, a row an irregular token gap.

    `config` holds plain YAML values only. The columns are those of `sim.records`.
    """

    config: Mapping[str, Any]
    requests: Columns
    steps: Columns
    gaps: Columns
    info: RunInfo = field(repr=False)
