"""Pooled inter-token latency: every gap between two tokens of one request, counted, not listed.

A step row says how many requests got a token in it whose last token came with the step before it on
the same replica: each such gap is the time between the two ends. All other gaps (after a
preemption, a step without the request, a stall) are rows of their own. So the pool is a weighted
sample, exact at any size.

Only finished requests may enter a latency statistic, but a step row counts whoever emitted. The
gaps of the others are taken out again, exactly: between its first and last token such a request
emitted in every step but where an irregular gap says otherwise, so the steps of its regular gaps
are known.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sim.metrics.latency import is_finished
from sim.run_result import Columns

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class GapSample:
    """Gaps between tokens: `gap_s[i]` seconds, occurring `count[i]` times."""

    gap_s: FloatArray
    count: IntArray

    @property
    def total_s(self) -> float:
        """Sum of all gaps, seconds."""
        return float((self.gap_s * self.count).sum())

    @property
    def total_count(self) -> int:
        """How many gaps there are."""
        return int(self.count.sum())


def pooled_gaps(steps: Columns, gaps: Columns) -> GapSample:
    """Every gap of every request, whatever became of it."""
    period_s = step_period_s(steps)
    regular = np.asarray(steps["num_gaps"], dtype=np.int64)
    return _sample(period_s, regular, np.asarray(gaps["gap_s"], dtype=np.float64))


def finished_gaps(requests: Columns, steps: Columns, gaps: Columns) -> GapSample:
    """Every gap of the finished requests, and no other."""
    finished = is_finished(requests)
    emitted = np.asarray(requests["num_output_tokens"]) > 1
    if not np.any(emitted & ~finished):
        return pooled_gaps(steps, gaps)
    finished_ids = requests["request_id"][finished]
    of_others = ~np.isin(gaps["request_id"], finished_ids)
    others = {name: column[emitted & ~finished] for name, column in requests.items()}
    theirs = _regular_gaps_by_step(others, steps, {k: v[of_others] for k, v in gaps.items()})
    regular = np.asarray(steps["num_gaps"], dtype=np.int64) - theirs
    irregular_s = np.asarray(gaps["gap_s"], dtype=np.float64)[~of_others]
    # A negative count can only come from rows that contradict each other, which sim.checks names.
    return _sample(step_period_s(steps), np.maximum(regular, 0), irregular_s)


def step_period_s(steps: Columns) -> FloatArray:
    """End of each step less the end of the step before it on its replica; NaN for a first step."""
    order = _replica_order(steps)
    end_s = np.asarray(steps["end_s"], dtype=np.float64)[order]
    replica = steps["replica"][order]
    period = np.full(len(end_s), np.nan)
    same = replica[1:] == replica[:-1]
    period[1:][same] = (end_s[1:] - end_s[:-1])[same]
    result = np.empty_like(period)
    result[order] = period
    return result


def _sample(period_s: FloatArray, regular: IntArray, irregular_s: FloatArray) -> GapSample:
    used = regular > 0
    ones = np.ones(len(irregular_s), dtype=np.int64)
    return GapSample(
        gap_s=np.concatenate([period_s[used], irregular_s]),
        count=np.concatenate([regular[used], ones]),
    )


def _replica_order(steps: Columns) -> npt.NDArray[np.intp]:
    replica, step = steps["replica"], steps["step"]
    # Rows in the order of time need no more than a stable sort by replica.
    order = np.argsort(replica, kind="stable")
    is_ordered = (step[order][1:] > step[order][:-1]) | (replica[order][1:] != replica[order][:-1])
    return order if is_ordered.all() else np.lexsort((step, replica))


def _regular_gaps_by_step(requests: Columns, steps: Columns, gaps: Columns) -> IntArray:
    """For each step row, how many of `requests` had a regular gap that ended there.

    Each stretch of consecutive emissions, from row a to row b, has its regular gaps at a+1 .. b.
    Stretches begin at the first token and at each irregular gap; they end at the last token and at
    the token before each irregular gap. Sums don't care which end belongs to which beginning, so
    a running sum over +1 and -1 marks counts them all at once.
    """
    order = _replica_order(steps)
    marks = np.zeros(len(order) + 1, dtype=np.int64)
    start = 0
    for replica in np.unique(steps["replica"]):
        rows = order[steps["replica"][order] == replica]
        here = marks[start : start + len(rows) + 1]
        mine, my_gaps = _of_replica(requests, replica), _of_replica(gaps, replica)
        _mark_stretches(here, steps["step"][rows], steps["end_s"][rows], mine, my_gaps)
        start += len(rows)
    by_step = np.empty(len(order), dtype=np.int64)
    by_step[order] = np.cumsum(marks[:-1])
    return by_step


def _of_replica(rows: Columns, replica: int) -> Columns:
    mine = rows["replica"] == replica
    return {name: column[mine] for name, column in rows.items()}


def _mark_stretches(
    marks: IntArray, step: IntArray, end_s: FloatArray, requests: Columns, gaps: Columns
) -> None:
    """Add one replica's marks, in place; `step` and `end_s` are its steps in order."""
    gap_row = np.searchsorted(step, gaps["step"])
    token_before_s = end_s[gap_row] - gaps["gap_s"]
    begins = [_nearest(end_s, requests["first_token_s"]), gap_row]
    ends = [_nearest(end_s, requests["last_token_s"]), _nearest(end_s, token_before_s)]
    np.add.at(marks, np.concatenate(begins) + 1, 1)
    np.subtract.at(marks, np.concatenate(ends) + 1, 1)


def _nearest(ascending: FloatArray, wanted: FloatArray) -> npt.NDArray[np.intp]:
    """Index of the nearest element: times equal up to the rounding of one difference."""
    right = np.clip(np.searchsorted(ascending, wanted), 1, max(len(ascending) - 1, 1))
    left_is_nearer = wanted - ascending[right - 1] <= ascending[right % len(ascending)] - wanted
    return np.where(left_is_nearer, right - 1, np.minimum(right, len(ascending) - 1))
