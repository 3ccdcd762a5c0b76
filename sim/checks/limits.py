"""No step goes over a limit of its replica."""

import numpy as np

from sim.checks.outcome import CheckOutcome, Tally
from sim.rows import pieces
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
    tally = Tally(name, "steps", ("replica", "step", column, "limit"))
    peak_share, peak = -1.0, ""
    for piece in pieces(run.steps, ("replica", "step", column)):
        limit = np.array(limits, dtype=np.int64)[piece["replica"]]
        tally.add({**piece, "limit": limit}, (piece[column] > limit) | (piece[column] < 0))
        most = int(np.argmax(piece[column] / limit))
        share = float(piece[column][most] / limit[most])
        if share > peak_share:
            peak_share, peak = share, f"peak {piece[column][most]:,}, limit {limit[most]:,}"
    outcome = tally.outcome()
    return CheckOutcome(name, True, peak) if outcome.ok and peak else outcome
