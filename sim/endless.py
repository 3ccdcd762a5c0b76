"""Requests that preempt each other for ever: how that is told from hard times, and what is said.

A token that came out stays, so a run whose steps emit comes to its end. Without
`scheduler_reserve_full_isl`, requests in a small KV pool can take each other's blocks in a cycle
of steps that emit nothing, in vLLM as well (README of `sim.scheduler`). Between two tokens a
request may rightly be preempted a few times; but a replica that has preempted, on average, each
request of a full batch a hundred times without one token from any gives no other token.
"""

from sim.errors import SimulationError
from sim.scheduler.config import CacheConfig, SchedulerConfig

_TIMES_A_REQUEST = 100


def max_preemptions_in_vain(scheduler: SchedulerConfig) -> int:
    """How often a replica may preempt between two tokens."""
    return _TIMES_A_REQUEST * scheduler.max_num_seqs


def endless_preemption(
    scheduler: SchedulerConfig, cache: CacheConfig, replica_id: int, now_s: float, since_s: float
) -> SimulationError:
    """The error of a replica over the limit, at `now_s`: no token came out after `since_s`."""
    cures = [f"give it more than num_gpu_blocks = {cache.num_gpu_blocks}"]
    if not scheduler.scheduler_reserve_full_isl:
        cures.append("set scheduler_reserve_full_isl: true")
    return SimulationError(
        f"the requests of replica {replica_id} take each other's KV blocks without end: at"
        f" {now_s:.6g} s it has preempted over {max_preemptions_in_vain(scheduler):,} times since"
        f" its last token came out ({_instant(since_s)}), and a real engine would go on with that;"
        f" {', or '.join(cures)}"
    )


def _instant(since_s: float) -> str:
    return f"at {since_s:.6g} s" if since_s >= 0 else "it gave none yet"
