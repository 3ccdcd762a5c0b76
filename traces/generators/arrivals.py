"""Arrival processes: when requests come. Each begins with an arrival at 0."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from traces.arrays import FloatArray
from traces.errors import TraceError


class ArrivalProcess(Protocol):
    """Instants of arrival, drawn from the generator handed in."""

    def times_s(self, num_requests: int, rng: np.random.Generator) -> FloatArray:
        """`num_requests` instants in seconds, ascending, the first 0."""


@dataclass(frozen=True, slots=True)
class GammaArrivals:
    """Independent gamma gaps with mean 1 / `rate_per_s` and coefficient of variation `cv`.

    Gamma with shape 1 / cv^2 and scale cv^2 / rate; cv 1 is a Poisson process, above 1 comes
    in bursts, below 1 is steadier.

    Raises:
        TraceError: a rate or cv that is not positive and finite.
    """

    rate_per_s: float
    cv: float

    def __post_init__(self) -> None:
        check_positive("rate_per_s", self.rate_per_s)
        check_positive("cv", self.cv)

    def times_s(self, num_requests: int, rng: np.random.Generator) -> FloatArray:
        """Running sum of the gaps, from 0."""
        square = self.cv**2
        return from_gaps(rng.gamma(1 / square, square / self.rate_per_s, num_requests - 1))


@dataclass(frozen=True, slots=True)
class PoissonArrivals:
    """Independent exponential gaps with mean 1 / `rate_per_s`.

    Raises:
        TraceError: a rate that is not positive and finite.
    """

    rate_per_s: float

    def __post_init__(self) -> None:
        check_positive("rate_per_s", self.rate_per_s)

    def times_s(self, num_requests: int, rng: np.random.Generator) -> FloatArray:
        """Running sum of the gaps, from 0."""
        return from_gaps(rng.exponential(1 / self.rate_per_s, num_requests - 1))


def check_positive(name: str, value: float) -> None:
    """Raise TraceError unless `value` is positive and finite."""
    if not (math.isfinite(value) and value > 0):
        raise TraceError(f"{name}: {value!r} is wrong; it must be positive and finite")


def from_gaps(gaps_s: FloatArray) -> FloatArray:
    """Instants with these gaps between them, from 0."""
    return np.concatenate(([0.0], np.cumsum(gaps_s)))
