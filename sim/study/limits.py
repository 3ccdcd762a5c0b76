"""What kept requests waiting: the token budget, the KV pool or the number of sequences.

vLLM V1 goes on admitting from the waiting queue until one of these stops it, so a step after which
requests still wait was stopped by one of them: by the sequences if as many run as may; by the
budget if the step's tokens used it up; else by the pool. Without chunked prefill a prompt longer
than what is left of the budget waits too: where the pool is less than half full, the budget is
named.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from sim.metrics import step_length_s
from sim.run_result import Columns, ReplicaInfo

NONE, BUDGET, KV, SEQS = 0, 1, 2, 3
CAUSES = ("none", "budget", "kv", "seqs")
"""Names of the causes by their number."""

MAIN_LIMIT_WORDS = {
    "budget": "requests wait for the token budget",
    "kv": "requests wait for KV blocks",
    "seqs": "requests wait for a seat (max_num_seqs)",
    "compute": "replicas are busy nearly all the time",
    "none": "replicas have time to spare",
}
"""What each name that `main_limit` gives means."""

_NOTABLE = 0.05


def step_causes(steps: Columns, replicas: Sequence[ReplicaInfo]) -> npt.NDArray[np.int8]:
    """For each step the number of what kept requests waiting after it was scheduled."""
    replica = steps["replica"]
    seqs = np.array([r.max_num_seqs for r in replicas])[replica]
    budget = np.array([r.max_num_batched_tokens for r in replicas])[replica]
    usable = np.array([r.usable_blocks for r in replicas])[replica]
    waits = (steps["num_waiting"] > 0) | (steps["num_preempted"] > 0)
    by_seqs = steps["num_running"] >= seqs
    by_budget = steps["num_tokens"] >= budget
    half_empty = steps["kv_blocks_used"] < 0.5 * usable
    causes = np.select(
        [~waits, steps["num_preempted"] > 0, by_seqs, by_budget | half_empty],
        [NONE, KV, SEQS, BUDGET],
        default=KV,
    )
    return np.asarray(causes, dtype=np.int8)


def limit_shares(steps: Columns, replicas: Sequence[ReplicaInfo]) -> dict[str, float | None]:
    """Share of the time in which steps ran that requests waited for each cause."""
    length_s = step_length_s(steps)
    total_s = float(length_s.sum())
    causes = step_causes(steps, replicas)
    return {
        f"{name}_share": float(length_s[causes == number].sum()) / total_s if total_s else None
        for number, name in enumerate(CAUSES)
    }


def main_limit(shares: dict[str, float | None], busy_share: float | None) -> str:
    """The cause that holds longest; `compute` if none does on busy replicas, else `none`."""
    named = {name: shares[f"{name}_share"] or 0.0 for name in CAUSES[1:]}
    largest = max(named, key=lambda name: named[name])
    if named[largest] >= _NOTABLE:
        return largest
    return "compute" if (busy_share or 0.0) > 0.9 else "none"
