"""Statistics of a sample, plain or weighted by counts, as one small record."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
Stats = dict[str, float | int | None]

PERCENTILES = (50, 90, 95, 99)


def weighted_percentile(
    values: npt.NDArray[Any], counts: npt.NDArray[Any], percents: Sequence[float]
) -> FloatArray:
    """Percentiles of the vector that holds `values[i]` `counts[i]` times, without expanding it.

    Equal bit for bit to `np.percentile(np.repeat(values, counts), percents)` (method "linear",
    Hyndman & Fan 7). `counts` are whole numbers >= 0; values must not be NaN. An empty sample
    gives NaN.
    """
    order = np.argsort(values, kind="stable")
    ordered = np.asarray(values, dtype=np.float64)[order]
    last_position = np.cumsum(np.asarray(counts, dtype=np.int64)[order])
    total = int(last_position[-1]) if len(last_position) else 0
    if total == 0:
        return np.full(len(percents), np.nan)
    virtual = (total - 1) * (np.asarray(percents, dtype=np.float64) / 100)
    below = np.minimum(np.floor(virtual).astype(np.int64), total - 1)
    above = np.minimum(below + 1, total - 1)
    low = ordered[np.searchsorted(last_position, below, side="right")]
    high = ordered[np.searchsorted(last_position, above, side="right")]
    return _interpolate(low, high, virtual - below)


def stats_of(values: npt.NDArray[Any], counts: npt.NDArray[Any] | None = None) -> Stats:
    """Count, mean, p50, p90, p95, p99 and max of a sample; all but the count None if it is empty.

    With `counts`, value i stands for `counts[i]` equal values. Percentiles as numpy's "linear".
    """
    if counts is None:
        counts = np.ones(len(values), dtype=np.int64)
    present = counts > 0
    values, counts = np.asarray(values, dtype=np.float64)[present], counts[present]
    total = int(counts.sum())
    if total == 0:
        return _record(0, None, [None] * len(PERCENTILES), None)
    # Not np.dot: BLAS may sum in another order on another machine or thread count.
    mean = float((values * counts).sum() / total)
    percentiles = weighted_percentile(values, counts, PERCENTILES)
    return _record(total, mean, [float(p) for p in percentiles], float(values.max()))


def _interpolate(low: FloatArray, high: FloatArray, share: FloatArray) -> FloatArray:
    """Numpy's own interpolation, with its two-sided form: exact at both ends, and monotone."""
    span = high - low
    return np.where(share >= 0.5, high - span * (1 - share), low + span * share)


def _record(
    count: int, mean: float | None, percentiles: Sequence[float | None], peak: float | None
) -> Stats:
    named = {f"p{p}": value for p, value in zip(PERCENTILES, percentiles, strict=True)}
    return {"count": count, "mean": mean, **named, "max": peak}
