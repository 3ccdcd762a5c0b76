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


def jitter(trace: Trace, grid_s: float, rng: np.random.Generator) -> Trace:
    """Spread arrivals that were recorded on a grid: each later by a random part of `grid_s`.

    Uniform from 0 to `grid_s`. The requests of one stamp keep their order, so a session's turns
    do too, if stamps lie at least `grid_s` apart.

    Raises:
        TraceError: a grid not positive and finite.
    """
    check_positive("jitter_s", grid_s)
    stamps, group = np.unique(trace.arrival_s, return_inverse=True)
    shifts = rng.random(len(trace)) * grid_s
    # Sorted within each stamp: rows of a trace are in order, so group by group is row by row.
    shifts = shifts[np.lexsort((shifts, group))]
    moved = np.maximum.accumulate(stamps[group] + shifts)
    return trace.with_arrivals(moved, f"jitter(grid_s={grid_s!r})")


def from_zero(trace: Trace) -> Trace:
    """The trace shifted so that its first arrival is 0; as it is if that is so."""
    first_s = trace.arrival_s[0]
    if first_s == 0:
        return trace
    return trace.with_arrivals(trace.arrival_s - first_s, "from_zero()")
