"""Weibull gaps with a given coefficient of variation."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from traces.arrays import FloatArray
from traces.errors import TraceError
from traces.generators.arrivals import check_positive, from_gaps

_SHAPES = (0.1, 100.0)


@dataclass(frozen=True, slots=True)
class WeibullArrivals:
    """Independent Weibull gaps with mean 1 / `rate_per_s` and coefficient of variation `cv`.

    cv 1 is a Poisson process. The shape k solves cv^2 = G(1 + 2/k) / G(1 + 1/k)^2 - 1, G the gamma
    function; the scale is 1 / (rate G(1 + 1/k)).

    Raises:
        TraceError: a rate or cv that is not positive and finite, or a cv outside 0.013 to 428.
    """

    rate_per_s: float
    cv: float

    def __post_init__(self) -> None:
        check_positive("rate_per_s", self.rate_per_s)
        check_positive("cv", self.cv)
        low, high = _cv(_SHAPES[1]), _cv(_SHAPES[0])
        if not low <= self.cv <= high:
            raise TraceError(f"cv: {self.cv!r} is wrong; Weibull gaps have {low:.3f} to {high:.0f}")

    @property
    def shape(self) -> float:
        """The shape whose gaps have this coefficient of variation, by bisection."""
        low, high = _SHAPES
        while high - low > 1e-12 * high:
            middle = (low + high) / 2
            low, high = (middle, high) if _cv(middle) > self.cv else (low, middle)
        return (low + high) / 2

    def gaps_s(self, number: int, rng: np.random.Generator) -> FloatArray:
        """Gaps, one after another."""
        scale = 1 / (self.rate_per_s * math.gamma(1 + 1 / self.shape))
        return scale * rng.weibull(self.shape, number)

    def times_s(self, num_requests: int, rng: np.random.Generator) -> FloatArray:
        """Running sum of the gaps, from 0."""
        return from_gaps(self.gaps_s(num_requests - 1, rng))


def _cv(shape: float) -> float:
    """Coefficient of variation of a Weibull variable: it falls as the shape grows."""
    log_ratio = math.lgamma(1 + 2 / shape) - 2 * math.lgamma(1 + 1 / shape)
    return math.sqrt(math.expm1(log_ratio))
