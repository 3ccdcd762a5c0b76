"""Pooled inter-token latency: every gap between two tokens of one request, counted, not listed.

A step row says how many requests got a token in it whose last token came with the step before it on
the same replica: each such gap is the time between the two ends. All other gaps (after a
preemption, a step without the request, a stall) are rows of their own. So the pool is a weighted
sample, exact at any size.

Only finished requests may enter a latency statistic, but a step row counts whoever emitted. The
gaps of the others are taken out again, exactly: between its first and last token such a request
emitted in every step but where an irregular gap says otherwise, so the steps of its regular gaps
are known (`stretches`).

Step rows must be in the order of time, as runs record them.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from sim.metrics.by_replica import ByReplica
from sim.metrics.latency import is_finished
from sim.metrics.stats import Stats, stats_of_parts
from sim.metrics.stretches import Stretches, stretches_of
from sim.rows import pieces
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


@dataclass(frozen=True, slots=True)
class GapPool:
    """All gaps of some requests, walked over in parts; no part is kept.

    `irregular_s`: the gaps that have rows of their own. `others`: requests whose regular gaps are
    not of the pool.
    """

    steps: Columns
    irregular_s: FloatArray
    others: list[Stretches] = field(default_factory=list)

    def parts(self) -> Iterator[tuple[FloatArray, IntArray]]:
        """Gaps and how often each occurs, those that occur at all."""
        last_end_s: dict[int, float] = {}
        for piece in pieces(self.steps, ("replica", "end_s", "num_gaps")):
            before_s = _end_before_s(piece, last_end_s)
            regular = np.asarray(piece["num_gaps"], dtype=np.int64)
            for theirs in self.others:
                regular = regular - theirs.regular_gaps(piece, before_s)
            # A negative count can only come from rows that contradict each other, which sim.checks
            # names.
            used = regular > 0
            yield (np.asarray(piece["end_s"])[used] - before_s[used], regular[used])
        if len(self.irregular_s):
            yield self.irregular_s, np.ones(len(self.irregular_s), dtype=np.int64)

    def sample(self) -> GapSample:
        """All of it at once."""
        parts = list(self.parts()) or [(np.empty(0), np.empty(0, np.int64))]
        gaps, counts = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        return GapSample(gaps, counts)

    def total_s(self) -> float:
        """Sum of all gaps, seconds."""
        return sum(float((gap_s * count).sum()) for gap_s, count in self.parts())

    def total_count(self) -> int:
        """How many gaps there are."""
        return sum(int(count.sum()) for _, count in self.parts())

    def stats(self) -> Stats:
        """The record of `stats_of`, without holding the sample."""
        return stats_of_parts(self.parts)


def gap_pool(requests: Columns, steps: Columns, gaps: Columns) -> GapPool:
    """Every gap of the finished requests, and no other."""
    finished = is_finished(requests)
    is_other = (np.asarray(requests["num_output_tokens"]) > 1) & ~finished
    if not np.any(is_other):
        return every_gap(steps, gaps)
    of_others = ~np.isin(gaps["request_id"], requests["request_id"][finished])
    irregular_s = np.asarray(gaps["gap_s"], dtype=np.float64)[~of_others]
    theirs = {name: column[of_others] for name, column in gaps.items()}
    return GapPool(steps, irregular_s, stretches_of(requests, is_other, steps, theirs))


def every_gap(steps: Columns, gaps: Columns) -> GapPool:
    """Every gap of every request, whatever became of it."""
    return GapPool(steps, np.asarray(gaps["gap_s"], dtype=np.float64))


def finished_gaps(requests: Columns, steps: Columns, gaps: Columns) -> GapSample:
    """Every gap of the finished requests, and no other, as one sample in memory."""
    return gap_pool(requests, steps, gaps).sample()


def pooled_gaps(steps: Columns, gaps: Columns) -> GapSample:
    """Every gap of every request, whatever became of it, as one sample in memory."""
    return every_gap(steps, gaps).sample()


def step_period_s(steps: Columns) -> FloatArray:
    """End of each step less the end of the step before it on its replica; NaN for a first step.

    Rows must be in the order of time.
    """
    return np.asarray(steps["end_s"] - _end_before_s(steps, {}), dtype=np.float64)


def _end_before_s(steps: Columns, last_end_s: dict[int, float]) -> FloatArray:
    """End of the step before each one on its replica, NaN for a first.

    `last_end_s` holds the last end of each replica so far, and is brought forward.
    """
    end_s = np.asarray(steps["end_s"], dtype=np.float64)
    if not len(end_s):
        return np.empty(0)
    replicas = ByReplica(np.asarray(steps["replica"]))
    before_s = np.array([last_end_s.get(index, np.nan) for index in replicas.ids.tolist()])
    last_end_s |= zip(replicas.ids.tolist(), replicas.last(end_s).tolist(), strict=True)
    return replicas.shifted(end_s, before_s)
