"""Spends a time budget on points: passes in random order until every point has settled."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from calibration.bench.points import Point
from calibration.bench.samples import MIN_SAMPLES, Sample, SampleStore

_MAX_SAMPLES = 60
_REFINE_UNTIL = 0.6  # of the budget; the rest is for samples of the points there are


class Plan(Protocol):
    """What is to be measured; grows while measuring."""

    def points(self) -> list[Point]:
        """Every point that is wanted now."""
        ...

    def refine(self, store: SampleStore) -> bool:
        """Look at what is known and ask for more points; False if nothing is missing."""
        ...


@dataclass(frozen=True, slots=True)
class BenchProgress:
    """How far measuring is; `remaining_s` is an estimate from the points' own times."""

    num_settled: int
    num_points: int
    elapsed_s: float
    remaining_s: float


class Session:
    """Measures a plan within `budget_s` seconds of `clock`.

    Each pass times every unsettled point once, in random order, so that a slow spell of the
    machine falls on all alike. A point's first sample in a session is a warm-up and is dropped.
    `on_progress` returns False to stop with what is there.
    """

    def __init__(
        self,
        measure: Callable[[Point], Sample],
        store: SampleStore,
        *,
        budget_s: float,
        clock: Callable[[], float],
        rng: np.random.Generator,
        on_progress: Callable[[BenchProgress], bool],
    ) -> None:
        self._measure, self.store = measure, store
        self._budget_s, self._clock, self._rng = budget_s, clock, rng
        self._on_progress = on_progress
        self._spent_s = 0.0
        self._started_s: float | None = None
        self._until_s = budget_s
        self._warm: set[Point] = set()
        self._took_s: dict[Point, float] = {}
        self.was_stopped = False

    def run(self, plan: Plan, share: float = 1.0) -> None:
        """Measure until all has settled, this share of the time is spent, or somebody says stop.

        Called again with a larger share it goes on; time between the calls does not count.
        """
        self._until_s = share * self._budget_s
        self._started_s = self._clock()
        while not self._is_over():
            unsettled = self._unsettled(plan.points())
            if unsettled:
                self._pass(unsettled, plan)
            if not self._refined(plan) and not unsettled:
                break
        self._spent_s = self.elapsed_s
        self._started_s = None

    @property
    def elapsed_s(self) -> float:
        """Time spent so far."""
        if self._started_s is None:
            return self._spent_s
        return self._spent_s + self._clock() - self._started_s

    def _pass(self, points: Sequence[Point], plan: Plan) -> None:
        # Points without any sample come first: a budget that runs out leaves no hole if it can.
        order = sorted(
            self._rng.permutation(len(points)).tolist(),
            key=lambda i: points[i] in self.store.samples,
        )
        for i in order:
            self._take(points[i])
            if self._is_over():
                return
            self.was_stopped = not self._on_progress(self._progress(plan.points()))
            if self.was_stopped:
                return

    def _refined(self, plan: Plan) -> bool:
        """Ask for more points, once all have some samples and there is time to measure more."""
        if self.elapsed_s > _REFINE_UNTIL * self._budget_s:
            return False
        samples = self.store.samples
        if any(len(samples.get(point, ())) < MIN_SAMPLES for point in plan.points()):
            return False
        return plan.refine(self.store)

    def _take(self, point: Point) -> None:
        before_s = self._clock()
        if point not in self._warm:
            self._warm.add(point)
            self._measure(point)
            before_s = self._clock()
        self.store.add(point, self._measure(point))
        self._took_s[point] = self._clock() - before_s

    def _is_over(self) -> bool:
        return self.was_stopped or self.elapsed_s >= self._until_s

    def _unsettled(self, points: Sequence[Point]) -> list[Point]:
        return [point for point in points if not self._is_done(point)]

    def _is_done(self, point: Point) -> bool:
        found = self.store.statistics(point)
        if found is None:
            return False
        return found.is_settled or len(self.store.samples[point]) >= _MAX_SAMPLES

    def _progress(self, points: Sequence[Point]) -> BenchProgress:
        unsettled = self._unsettled(points)
        mean_s = sum(self._took_s.values()) / len(self._took_s)
        needed_s = sum(self._needed(point) * self._took_s.get(point, mean_s) for point in unsettled)
        left_s = max(self._budget_s - self.elapsed_s, 0.0)
        return BenchProgress(
            len(points) - len(unsettled), len(points), self.elapsed_s, min(needed_s, left_s)
        )

    def _needed(self, point: Point) -> int:
        """Samples still due: the error falls with the root of their number."""
        found = self.store.statistics(point)
        if found is None:
            return MIN_SAMPLES + 1
        most = _MAX_SAMPLES - len(self.store.samples[point])
        wanted = max(MIN_SAMPLES, round(found.num_samples * (found.error / 0.01) ** 2))
        return max(1, min(wanted - found.num_samples, most))
