"""Confidence intervals of a mean: Student's t, batch means, bootstraps of seeds and of blocks."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate and the ends of its interval at `confidence`; infinite ends: nothing is known."""

    estimate: float
    low: float
    high: float
    confidence: float

    @property
    def half_width(self) -> float:
        """Half the length."""
        return (self.high - self.low) / 2

    def holds(self, value: float) -> bool:
        """Whether a value lies inside, the ends included."""
        return self.low <= value <= self.high


def t_factor(confidence: float, degrees_of_freedom: int) -> float:
    """Student's factor of a two-sided interval."""
    from scipy.stats import t  # noqa: PLC0415 -- slow to import

    return float(t.ppf(0.5 + confidence / 2, degrees_of_freedom))


def t_interval(values: FloatArray, confidence: float = 0.95) -> Interval:
    """The mean of independent values with Student's interval; infinite for fewer than two."""
    mean = float(np.mean(values)) if len(values) else math.nan
    if len(values) < 2:
        return Interval(mean, -math.inf, math.inf, confidence)
    error = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    reach = t_factor(confidence, len(values) - 1) * error
    return Interval(mean, mean - reach, mean + reach, confidence)


def values_needed(values: FloatArray, half_width: float, confidence: float = 0.95) -> int | None:
    """How many values like these make the t interval's half width at most `half_width`.

    None if fewer than two are given, which say nothing of the spread; never below 2.
    """
    if len(values) < 2:
        return None
    spread = float(np.std(values, ddof=1))
    number = 2
    while t_factor(confidence, number - 1) * spread > half_width * math.sqrt(number):
        # Straight to the normal's answer while that is far off, then one by one.
        normal = t_factor(confidence, 10**6) * spread / half_width
        number = max(number + 1, min(int(normal**2), 10**9))
        if number >= 10**9:
            break
    return number


@dataclass(frozen=True, slots=True)
class BatchMeans:
    """A batch-means interval: of how many batches of which size, and how related they still are.

    `is_reliable`: the batch means show no correlation of lag 1 that chance would not explain.
    """

    interval: Interval
    num_batches: int
    batch_size: int
    correlation: float
    is_reliable: bool


def batch_means(values: FloatArray, confidence: float = 0.95, most_batches: int = 30) -> BatchMeans:
    """The mean of a correlated series with an interval from the means of consecutive batches.

    Batches are made longer (fewer, down to 10) until their means pass for uncorrelated: lag-1
    correlation within 1.64 / sqrt(batches), a one-sided test at 5 % (Law, Simulation Modeling and
    Analysis, section 9.5.3). Leading values that fill no batch are left out. At least 20 values.
    """
    if len(values) < 20:
        raise ValueError(f"batch means need 20 values or more, got {len(values)}")
    for num_batches in range(min(most_batches, len(values) // 2), 9, -1):
        size = len(values) // num_batches
        means = values[len(values) - size * num_batches :].reshape(num_batches, size).mean(axis=1)
        correlation = lag_one(means)
        is_reliable = correlation <= 1.64 / math.sqrt(num_batches)
        if is_reliable:
            break
    return BatchMeans(t_interval(means, confidence), num_batches, size, correlation, is_reliable)


def lag_one(values: FloatArray) -> float:
    """Correlation of each value with the next; 0 for a constant."""
    centred = values - values.mean()
    power = float((centred * centred).sum())
    return float((centred[1:] * centred[:-1]).sum()) / power if power else 0.0


def block_length(values: FloatArray) -> int:
    """Length of blocks that keep most of a series' correlation, for a block bootstrap.

    Twice the time in which correlation dies out (the integrated autocorrelation time, summed until
    it first falls below 0.05), at least n^(1/3) and at most n / 10.
    """
    n = len(values)
    shortest: int = max(1, round(n ** (1 / 3)))
    longest: int = max(1, n // 10)
    centred = values - values.mean()
    if not centred.any():
        return min(shortest, longest)
    spectrum = np.abs(np.fft.rfft(centred, 2 * n)) ** 2
    correlation = np.fft.irfft(spectrum)[:longest]
    correlation = correlation / correlation[0]
    small = np.flatnonzero(correlation < 0.05)
    until = int(small[0]) if len(small) else len(correlation)
    time = 1 + 2 * float(correlation[1:until].sum())
    wanted: int = round(2 * time)
    return min(max(wanted, shortest), longest)


def block_indices(n: int, length: int, num_resamples: int, rng: np.random.Generator) -> IntArray:
    """Row numbers of circular block resamples: one resample a row, each of `n` numbers.

    Blocks of consecutive rows begin anywhere and wrap around the end (Politis & Romano 1992).
    """
    num_blocks = -(-n // length)
    starts = rng.integers(0, n, (num_resamples, num_blocks, 1))
    rows = (starts + np.arange(length)) % n
    return np.asarray(rows.reshape(num_resamples, -1)[:, :n], dtype=np.int64)


def bootstrap_interval(
    estimate: float, resampled: FloatArray, confidence: float = 0.95
) -> Interval:
    """The basic bootstrap interval: the resampled spread, turned around the estimate."""
    tail = 50 * (1 - confidence)
    low, high = np.percentile(resampled, (tail, 100 - tail))
    return Interval(estimate, 2 * estimate - float(high), 2 * estimate - float(low), confidence)
