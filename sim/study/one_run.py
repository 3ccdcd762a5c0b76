"""The interval of what changed in one pair of runs, from blocks of its requests.

Neighbours in a queue are not independent, so requests are taken in blocks in order of arrival:
block means for a change of a mean, a block bootstrap for one of a percentile.
"""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sim.study.intervals import (
    Interval,
    block_indices,
    block_length,
    mean_error,
    t_factor,
)

FloatArray = npt.NDArray[np.float64]

RESAMPLES = 600
_FEWEST = 20
_FEWEST_INDEPENDENT = 10


class Change(NamedTuple):
    """The change in one pair: of the logarithm if `is_relative`."""

    estimate: float
    is_relative: bool
    confidence: float


def one_run_interval(
    a: FloatArray,
    b: FloatArray,
    percent: float | None,
    change: Change,
    rng: np.random.Generator,
) -> Interval:
    """The interval of a mean's (`percent` None) or a percentile's change.

    `a` and `b` are the same requests in both runs, in order of arrival, NaN where one has no value.
    Infinite if they say too little.
    """
    both = ~np.isnan(a) & ~np.isnan(b)
    a, b = a[both], b[both]
    if len(a) < _FEWEST:
        reach = math.inf
    elif percent is None:
        reach = _mean_reach(a, b, change)
    else:
        reach = _percentile_reach(a, b, percent, change, rng)
    return Interval(
        change.estimate, change.estimate - reach, change.estimate + reach, change.confidence
    )


def _mean_reach(a: FloatArray, b: FloatArray, change: Change) -> float:
    """Half the interval of a mean's change: of each request's part in it, by its blocks."""
    parts = b / b.mean() - a / a.mean() if change.is_relative else b - a
    found = mean_error(parts)
    if found.error == 0:
        return 0.0
    if not found.is_reliable:
        return math.inf
    return t_factor(change.confidence, found.degrees_of_freedom) * found.error


def _percentile_reach(
    a: FloatArray, b: FloatArray, percent: float, change: Change, rng: np.random.Generator
) -> float:
    """The bootstrap's standard error with Student's factor for the blocks that reach beyond it."""
    blocks = block_bootstrap(a, b, percent, change.is_relative, rng)
    if blocks.num_independent < _FEWEST_INDEPENDENT:
        return math.inf
    spread = float(blocks.changes.std(ddof=1))
    if spread == 0:
        return 0.0
    free = blocks.num_independent - 1
    student = t_factor(change.confidence, free)
    return student * spread * math.sqrt(blocks.num_independent / free)


class Blocks(NamedTuple):
    """Resampled changes, and how many independent pieces the run has for this metric."""

    changes: FloatArray
    num_independent: int


def block_bootstrap(
    a: FloatArray, b: FloatArray, percent: float, is_relative: bool, rng: np.random.Generator
) -> Blocks:
    """Resample the same blocks of consecutive requests from both runs."""
    length = max(block_length(a), block_length(b))
    independent = min(_num_independent(values, length, percent) for values in (a, b))
    change = np.empty(RESAMPLES)
    for start in range(0, RESAMPLES, 100):
        index = block_indices(len(a), length, 100, rng)
        x, y = (np.percentile(values[index], percent, axis=1) for values in (a, b))
        change[start : start + 100] = np.log(y / x) if is_relative else y - x
    return Blocks(change, independent)


def _num_independent(values: FloatArray, length: int, percent: float) -> int:
    """Blocks that have a value beyond the percentile, on its rarer side."""
    threshold = np.percentile(values, percent)
    beyond = values > threshold if percent >= 50 else values < threshold
    return len(np.unique(np.flatnonzero(beyond) // length))
