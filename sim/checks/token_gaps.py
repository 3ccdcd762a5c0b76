"""TTFT + sum of ITL = E2E, and as many gaps as there are pairs of tokens."""

import numpy as np
import numpy.typing as npt

from sim.checks.outcome import CheckOutcome, Tally, compare
from sim.metrics import every_gap, gap_pool, is_finished
from sim.rows import pieces
from sim.run_result import RunResult


def all_gaps_sum(run: RunResult) -> CheckOutcome:
    """Sum of all gaps = sum of (last - first token) of every request that got a token."""
    between_s = float(np.nansum(run.requests["last_token_s"] - run.requests["first_token_s"]))
    gaps_s = every_gap(run.steps, run.gaps).total_s()
    says = ("seconds between first and last tokens", "sum of gaps")
    return compare("sum of ITL, all requests", between_s, gaps_s, says)


def finished_gaps_sum(run: RunResult) -> CheckOutcome:
    """TTFT + sum of ITL = E2E over the finished requests: the sample that ITL figures come from."""
    r = run.requests
    finished = is_finished(r)
    e2e_s = float((r["last_token_s"] - r["arrival_s"])[finished].sum())
    ttft_s = float((r["first_token_s"] - r["arrival_s"])[finished].sum())
    itl_s = gap_pool(r, run.steps, run.gaps).total_s()
    says = ("sum of E2E", "sum of TTFT + sum of ITL")
    return compare("TTFT + sum of ITL = E2E, finished", e2e_s, ttft_s + itl_s, says)


def gap_count(run: RunResult) -> CheckOutcome:
    """As many gaps as tokens after each request's first."""
    after_first = int(np.maximum(run.requests["num_output_tokens"] - 1, 0).sum())
    recorded = every_gap(run.steps, run.gaps).total_count()
    return compare("number of gaps", after_first, recorded, ("tokens after the first", "gaps"))


def step_emissions(run: RunResult) -> CheckOutcome:
    """Each step's tokens = its first tokens + its regular gaps + its rows of irregular gaps."""
    columns = ("replica", "step", "num_emitted", "num_first_tokens", "num_gaps")
    tally = Tally("tokens of each step have a gap or are first", "steps", columns)
    base = 1 + max((int(p["step"].max()) for p in pieces(run.steps, ("step",))), default=0)
    gap_keys = run.gaps["replica"].astype(np.int64) * base + run.gaps["step"]
    keys, counts = np.unique(gap_keys, return_counts=True)
    for piece in pieces(run.steps, columns):
        irregular = _counts_at(
            piece["replica"].astype(np.int64) * base + piece["step"], keys, counts
        )
        explained = piece["num_first_tokens"] + piece["num_gaps"] + irregular
        tally.add(piece, piece["num_emitted"] != explained)
    return tally.outcome()


def _counts_at(
    wanted: npt.NDArray[np.int64], keys: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """How many gaps belong to each wanted step: one of the ascending `keys`, or none."""
    if not len(keys):
        return np.zeros(len(wanted), dtype=np.int64)
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[at] == wanted, counts[at], 0)
