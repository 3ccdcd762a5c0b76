"""Transforms that keep all requests and move them in time."""

from __future__ import annotations

import numpy as np

from traces.errors import TraceError
from traces.generators.arrivals import PoissonArrivals, check_positive
from traces.trace import Trace


def scale_rate(trace: Trace, factor: float) -> Trace:
    """`factor` times the arrival rate by compressing time: each arrival_s divided by it.

    Raises:
        TraceError: a factor not positive and finite, or so small that times overflow.
    """
    check_positive("factor", factor)
    with np.errstate(over="ignore"):
        arrival_s = trace.arrival_s / factor
    if not np.isfinite(arrival_s[-1]):
        raise TraceError(f"factor: {factor!r} is wrong; times divided by it must stay finite")
    return trace.with_arrivals(arrival_s, f"scale_rate(factor={factor!r})")


def with_poisson_arrivals(trace: Trace, rate_per_s: float, rng: np.random.Generator) -> Trace:
    """The same requests in the same order, arriving as a Poisson process from 0.

    Requests that arrived together are ordered by id, as everywhere.

    Raises:
        TraceError: a rate not positive and finite.
    """
    arrival_s = PoissonArrivals(rate_per_s).times_s(len(trace), rng)
    return trace.with_arrivals(arrival_s, f"with_poisson_arrivals(rate_per_s={rate_per_s!r})")
