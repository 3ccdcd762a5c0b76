"""Arrival processes whose rate changes with time."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from traces.arrays import FloatArray
from traces.errors import TraceError
from traces.generators.arrivals import check_positive

DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class OnOffArrivals:
    """Bursts: Poisson at `on_rate_per_s` while on, at `off_rate_per_s` while off.

    On and off last exponential times with means `on_s` and `off_s` (a Markov-modulated Poisson
    process); it begins with an arrival, on.

    Raises:
        TraceError: a value outside its range.
    """

    on_rate_per_s: float
    on_s: float
    off_s: float
    off_rate_per_s: float = 0.0

    def __post_init__(self) -> None:
        for name in ("on_rate_per_s", "on_s", "off_s"):
            check_positive(name, getattr(self, name))
        if not (math.isfinite(self.off_rate_per_s) and self.off_rate_per_s >= 0):
            raise TraceError(f"off_rate_per_s: {self.off_rate_per_s!r} is wrong; it must be >= 0")

    def times_s(self, num_requests: int, rng: np.random.Generator) -> FloatArray:
        """Instants in order, the first 0."""
        pieces, number, at_s, is_on = [np.zeros(1)], 1, 0.0, True
        while number < num_requests:
            length_s = rng.exponential(self.on_s if is_on else self.off_s)
            rate = self.on_rate_per_s if is_on else self.off_rate_per_s
            piece = at_s + np.sort(rng.random(rng.poisson(rate * length_s))) * length_s
            pieces.append(piece)
            number += len(piece)
            at_s, is_on = at_s + length_s, not is_on
        return np.concatenate(pieces)[:num_requests]


@dataclass(frozen=True, slots=True)
class DiurnalArrivals:
    """A Poisson process whose rate swings as a sine over a day, or another period.

    rate(t) = rate_per_s (1 + swing cos(2 pi (t - peak_at_s) / period_s)); the first arrival is
    moved to 0.

    Raises:
        TraceError: a value outside its range.
    """

    rate_per_s: float
    swing: float = 0.5
    peak_at_s: float = DAY_S / 2
    period_s: float = DAY_S

    def __post_init__(self) -> None:
        check_positive("rate_per_s", self.rate_per_s)
        check_positive("period_s", self.period_s)
        if not 0 <= self.swing <= 1:
            raise TraceError(f"swing: {self.swing!r} is wrong; it must be from 0 to 1")
        if not math.isfinite(self.peak_at_s):
            raise TraceError(f"peak_at_s: {self.peak_at_s!r} is wrong; it must be finite")

    def times_s(self, num_requests: int, rng: np.random.Generator) -> FloatArray:
        """Instants in order, the first 0 (Lewis & Shedler 1979: candidates at the peak rate)."""
        peak = self.rate_per_s * (1 + self.swing)
        pieces: list[FloatArray] = []
        number, at_s = 0, 0.0
        while number < num_requests:
            candidates = at_s + np.cumsum(rng.exponential(1 / peak, max(num_requests, 1_000)))
            at_s = float(candidates[-1])
            swing = np.cos(2 * np.pi * (candidates - self.peak_at_s) / self.period_s)
            rate = self.rate_per_s * (1 + self.swing * swing)
            kept = candidates[rng.random(len(candidates)) * peak < rate]
            pieces.append(kept)
            number += len(kept)
        times = np.concatenate(pieces)[:num_requests]
        return np.asarray(times - times[0])


@dataclass(frozen=True, slots=True)
class Stage:
    """A stretch of constant rate.

    Raises:
        TraceError: a rate below 0 or a length not positive.
    """

    rate_per_s: float
    duration_s: float

    def __post_init__(self) -> None:
        check_positive("duration_s", self.duration_s)
        if not (math.isfinite(self.rate_per_s) and self.rate_per_s >= 0):
            raise TraceError(f"rate_per_s: {self.rate_per_s!r} is wrong; it must be >= 0")

    @property
    def num_requests(self) -> int:
        """Requests that exactly fill it."""
        return round(self.rate_per_s * self.duration_s)


@dataclass(frozen=True, slots=True)
class StagedArrivals:
    """Rates one after another, each stage with exactly round(rate * duration) requests.

    Within a stage they lie as a Poisson process does that is known to have that many: uniform and
    independent, in order. Times count from the beginning of the first stage.

    Raises:
        TraceError: no stage, or none with a request.
    """

    stages: tuple[Stage, ...]

    def __post_init__(self) -> None:
        if not self.num_requests:
            raise TraceError("stages: there is no request in them; rate * duration must reach 1")

    @property
    def num_requests(self) -> int:
        """Requests of all stages: a trace has no other number."""
        return sum(stage.num_requests for stage in self.stages)

    def times_s(self, num_requests: int, rng: np.random.Generator) -> FloatArray:
        """Instants in order."""
        if num_requests != self.num_requests:
            raise TraceError(
                f"num_requests: {num_requests} is wrong; the stages have {self.num_requests}"
            )
        pieces, at_s = [], 0.0
        for stage in self.stages:
            within = np.sort(rng.random(stage.num_requests)) * stage.duration_s
            pieces.append(at_s + within)
            at_s += stage.duration_s
        return np.concatenate(pieces)
