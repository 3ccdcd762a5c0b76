"""No step goes over a limit of its replica."""

import numpy as np

from sim.checks.outcome import CheckOutcome, none_bad
from sim.run_result import RunResult


def blocks_within_capacity(run: RunResult) -> CheckOutcome:
    """KV blocks in use <= blocks of the pool less the null block."""
    limits = [replica.usable_blocks for replica in run.info.replicas]
    return _at_most(run, "KV blocks within capacity", "kv_blocks_used", limits)


def running_within_limit(run: RunResult) -> CheckOutcome:
    """Requests running <= max_num_seqs."""
    limits = [replica.max_num_seqs for replica in run.info.replicas]
    return _at_most(run, "running within max_num_seqs", "num_running", limits)


def tokens_within_budget(run: RunResult) -> CheckOutcome:
    """Tokens of a step <= max_num_batched_tokens."""
    limits = [replica.max_num_batched_tokens for replica in run.info.replicas]
    return _at_most(run, "tokens within max_num_batched_tokens", "num_tokens", limits)


def _at_most(run: RunResult, name: str, column: str, limits: list[int]) -> CheckOutcome:
    steps = run.steps
    limit = np.array(limits, dtype=np.int64)[steps["replica"]]
    bad = (steps[column] > limit) | (steps[column] < 0)
    shown = {**steps, "limit": limit}
    outcome = none_bad(name, shown, bad, "steps", ("replica", "step", column, "limit"))
    if not outcome.ok or not len(limit):
        return outcome
    peak = int(np.argmax(steps[column] / limit))
    return CheckOutcome(name, True, f"peak {steps[column][peak]:,}, limit {limit[peak]:,}")
