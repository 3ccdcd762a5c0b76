"""What the metrics need of the steps, gathered in one walk over their rows."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from sim.metrics.by_replica import ByReplica
from sim.rows import pieces
from sim.run_result import Columns

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

_READ = (
    "replica",
    "start_s",
    "end_s",
    "num_tokens",
    "num_requests",
    "kv_blocks_used",
    "num_emitted",
)


@dataclass(slots=True)
class StepTotals:
    """Sums and extremes of the steps of each of `num_replicas` replicas (arrays by replica id).

    `held_block_s`: KV blocks in use times the length of their step, block-seconds. `last_end_s` is
    None without a step.
    """

    num_replicas: int
    num_steps: IntArray = field(init=False)
    num_tokens: IntArray = field(init=False)
    num_emitted: IntArray = field(init=False)
    num_requests: IntArray = field(init=False)
    max_blocks: IntArray = field(init=False)
    busy_s: FloatArray = field(init=False)
    held_block_s: FloatArray = field(init=False)
    max_length_s: float | None = None
    last_end_s: float | None = None

    def __post_init__(self) -> None:
        for name in ("num_steps", "num_tokens", "num_emitted", "num_requests", "max_blocks"):
            setattr(self, name, np.zeros(self.num_replicas, dtype=np.int64))
        self.busy_s = np.zeros(self.num_replicas)
        self.held_block_s = np.zeros(self.num_replicas)

    def add(self, steps: Columns) -> None:
        """Take in some more rows; there must be one."""
        length_s = np.asarray(steps["end_s"] - steps["start_s"], dtype=np.float64)
        replicas = ByReplica(np.asarray(steps["replica"]))
        ids = replicas.ids
        self.num_steps[ids] += replicas.counts(len(length_s))
        self.num_tokens[ids] += replicas.sums(steps["num_tokens"])
        self.num_emitted[ids] += replicas.sums(steps["num_emitted"])
        self.num_requests[ids] += replicas.sums(steps["num_requests"])
        self.busy_s[ids] += replicas.sums(length_s)
        self.held_block_s[ids] += replicas.sums(steps["kv_blocks_used"] * length_s)
        most_blocks = replicas.most(steps["kv_blocks_used"])
        self.max_blocks[ids] = np.maximum(self.max_blocks[ids], most_blocks)
        self.max_length_s = _larger(self.max_length_s, length_s)
        self.last_end_s = _larger(self.last_end_s, steps["end_s"])


def step_totals(steps: Columns, num_replicas: int) -> StepTotals:
    """The totals of a whole table."""
    totals = StepTotals(num_replicas)
    for piece in pieces(steps, _READ):
        totals.add(piece)
    return totals


def _larger(so_far: float | None, values: npt.NDArray[Any]) -> float:
    here = float(values.max())
    return here if so_far is None else max(so_far, here)
