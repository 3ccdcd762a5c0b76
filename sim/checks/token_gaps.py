"""TTFT + sum of ITL = E2E, and as many gaps as there are pairs of tokens."""

import numpy as np

from sim.checks.outcome import CheckOutcome, compare, none_bad
from sim.metrics import finished_gaps, is_finished, pooled_gaps
from sim.run_result import RunResult


def all_gaps_sum(run: RunResult) -> CheckOutcome:
    """Sum of all gaps = sum of (last - first token) of every request that got a token."""
    between_s = float(np.nansum(run.requests["last_token_s"] - run.requests["first_token_s"]))
    gaps_s = pooled_gaps(run.steps, run.gaps).total_s
    says = ("seconds between first and last tokens", "sum of gaps")
    return compare("sum of ITL, all requests", between_s, gaps_s, says)


def finished_gaps_sum(run: RunResult) -> CheckOutcome:
    """TTFT + sum of ITL = E2E over the finished requests: the sample that ITL figures come from."""
    r = run.requests
    finished = is_finished(r)
    e2e_s = float((r["last_token_s"] - r["arrival_s"])[finished].sum())
    ttft_s = float((r["first_token_s"] - r["arrival_s"])[finished].sum())
    itl_s = finished_gaps(r, run.steps, run.gaps).total_s
    says = ("sum of E2E", "sum of TTFT + sum of ITL")
    return compare("TTFT + sum of ITL = E2E, finished", e2e_s, ttft_s + itl_s, says)


def gap_count(run: RunResult) -> CheckOutcome:
    """As many gaps as tokens after each request's first."""
    after_first = int(np.maximum(run.requests["num_output_tokens"] - 1, 0).sum())
    recorded = pooled_gaps(run.steps, run.gaps).total_count
    return compare("number of gaps", after_first, recorded, ("tokens after the first", "gaps"))


def step_emissions(run: RunResult) -> CheckOutcome:
    """Each step's tokens = its first tokens + its regular gaps + its rows of irregular gaps."""
    steps = run.steps
    explained = steps["num_first_tokens"] + steps["num_gaps"] + _irregular_by_step(run)
    bad = steps["num_emitted"] != explained
    columns = ("replica", "step", "num_emitted", "num_first_tokens", "num_gaps")
    return none_bad("tokens of each step have a gap or are first", steps, bad, "steps", columns)


def _irregular_by_step(run: RunResult) -> np.ndarray:
    """How many rows of `gaps` belong to each row of `steps`."""
    steps, gaps = run.steps, run.gaps
    base = 1 + int(max(steps["step"].max(initial=0), gaps["step"].max(initial=0)))
    step_key = steps["replica"].astype(np.int64) * base + steps["step"]
    gap_key = gaps["replica"].astype(np.int64) * base + gaps["step"]
    keys, counts = np.unique(gap_key, return_counts=True)
    if not len(keys):
        return np.zeros(len(step_key), dtype=np.int64)
    at = np.minimum(np.searchsorted(keys, step_key), len(keys) - 1)
    return np.where(keys[at] == step_key, counts[at], 0)
