"""Statistics of a sample, plain or weighted by counts, as one small record."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sim.metrics.selection import Part, Survey, Walk, survey_of, values_at

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
    part = _as_part(values, counts)
    return _percentiles(lambda: iter([part]), int(part[1].sum()), percents)


def stats_of(values: npt.NDArray[Any], counts: npt.NDArray[Any] | None = None) -> Stats:
    """Count, mean, p50, p90, p95, p99 and max of a sample; all but the count None if it is empty.

    With `counts`, value i stands for `counts[i]` equal values. Percentiles as numpy's "linear".
    """
    if counts is not None:
        part = _as_part(values, counts)
        return stats_of_parts(lambda: iter([part]))
    if not len(values):
        return _empty()
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    mean = float(np.asarray(values, dtype=np.float64).sum() / len(values))
    virtual, below, above = _ranks(len(ordered), PERCENTILES)
    percentiles = _interpolate(ordered[below], ordered[above], virtual - below)
    return _record(len(ordered), mean, percentiles.tolist(), float(ordered[-1]))


def stats_of_parts(walk: Walk) -> Stats:
    """As `stats_of` with counts, of a sample that comes in parts, a few walks over them."""
    total, total_sum, peak = 0, 0.0, -np.inf
    survey = Survey()
    for values, counts in walk():
        present = counts > 0
        if present.any():
            total += int(counts.sum())
            # Not np.dot: BLAS may sum in another order on another machine or thread count.
            total_sum += float((values * counts).sum())
            peak = max(peak, float(values[present].max()))
            survey.add(values, counts)
    if not total:
        return _empty()
    percentiles = _percentiles(walk, total, PERCENTILES, survey)
    return _record(total, total_sum / total, percentiles.tolist(), peak)


def _as_part(values: npt.NDArray[Any], counts: npt.NDArray[Any]) -> Part:
    present = np.asarray(counts) > 0
    return (
        np.asarray(values, dtype=np.float64)[present],
        np.asarray(counts, dtype=np.int64)[present],
    )


def _percentiles(
    walk: Walk, total: int, percents: Sequence[float], survey: Survey | None = None
) -> FloatArray:
    if not total:
        return np.full(len(percents), np.nan)
    virtual, below, above = _ranks(total, percents)
    found = values_at(walk, [*below.tolist(), *above.tolist()], survey or survey_of(walk))
    low, high = (np.array([found[rank] for rank in ranks.tolist()]) for ranks in (below, above))
    return _interpolate(low, high, virtual - below)


def _ranks(
    total: int, percents: Sequence[float]
) -> tuple[FloatArray, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Where percentiles lie: between which two ranks, and at which broken one."""
    virtual = (total - 1) * (np.asarray(percents, dtype=np.float64) / 100)
    below = np.minimum(np.floor(virtual).astype(np.int64), total - 1)
    return virtual, below, np.minimum(below + 1, total - 1)


def _interpolate(low: FloatArray, high: FloatArray, share: FloatArray) -> FloatArray:
    """Numpy's own interpolation, with its two-sided form: exact at both ends, and monotone."""
    span = high - low
    return np.where(share >= 0.5, high - span * (1 - share), low + span * share)


def _empty() -> Stats:
    return _record(0, None, [None] * len(PERCENTILES), None)


def _record(
    count: int, mean: float | None, percentiles: Sequence[float | None], peak: float | None
) -> Stats:
    named = {f"p{p}": value for p, value in zip(PERCENTILES, percentiles, strict=True)}
    return {"count": count, "mean": mean, **named, "max": peak}
