"""Fewer points for a picture: an even choice for scatters, means over bins for time series."""

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


def evenly(order: npt.NDArray[np.intp], at_most: int) -> npt.NDArray[np.intp]:
    """At most so many of the given row numbers, evenly through their order, both ends kept."""
    if len(order) <= at_most:
        return order
    return np.take(order, np.linspace(0, len(order) - 1, at_most).round().astype(np.intp))


def bin_means(
    edges: FloatArray, start_s: FloatArray, end_s: FloatArray, value: FloatArray
) -> FloatArray:
    """Time-weighted mean in each bin of a value held from each start to its end, else 0.

    The spans may not overlap and must be in order of time. Exact for any bin width: the integral
    up to each edge is that of the spans before, and a part of the one under way.
    """
    if not len(start_s):
        return np.zeros(len(edges) - 1)
    length_s = end_s - start_s
    area = np.concatenate([[0.0], np.cumsum(value * length_s)])
    at = np.searchsorted(start_s, edges, "right") - 1
    part = value[at] * np.clip(edges - start_s[at], 0.0, length_s[at])
    integral = np.where(at < 0, 0.0, area[np.maximum(at, 0)] + part)
    return np.asarray(np.diff(integral) / np.diff(edges), dtype=np.float64)


def bin_rates(
    edges: FloatArray, times_s: FloatArray, amounts: npt.NDArray[np.int64] | None = None
) -> FloatArray:
    """Amounts (or events) a second in each bin; NaN times are left out."""
    happened = ~np.isnan(times_s)
    weights = None if amounts is None else amounts[happened]
    totals, _ = np.histogram(times_s[happened], bins=edges, weights=weights)
    return np.asarray(totals / np.diff(edges), dtype=np.float64)


def bin_percentiles(
    edges: FloatArray, at: FloatArray, values: FloatArray, percents: tuple[float, ...]
) -> FloatArray:
    """Percentiles (rows) of the values in each bin of `at` (columns); NaN for an empty bin."""
    result = np.full((len(percents), len(edges) - 1), np.nan)
    which = np.clip(np.searchsorted(edges, at, side="right") - 1, 0, len(edges) - 2)
    for index in np.unique(which):
        result[:, index] = np.percentile(values[which == index], percents)
    return result
