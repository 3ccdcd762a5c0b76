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


NUM_BLOCKS = 10
"""Blocks of a single run whose means say how uncertain its mean is. So few, because a block must be
many correlation times long: the spread of block means is too small by about one correlation time
a block length. Student's factor for so few is only 8 % larger than for 20."""

_LIVES_NEEDED = 40
"""Correlation times of a run below which its interval is not to be trusted: a block is then less
than four long."""


@dataclass(frozen=True, slots=True)
class MeanError:
    """The standard error of a correlated series' mean, and whether the series is long enough."""

    error: float
    degrees_of_freedom: int
    correlation_time: float
    is_reliable: bool


def mean_error(values: FloatArray) -> MeanError:
    """The standard error of the mean, from the means of all blocks of a tenth of the series.

    Overlapping batch means (Meketon & Schmeiser, WSC 1984), the series closed to a ring. At least
    20 values.
    """
    n = len(values)
    if n < 2 * NUM_BLOCKS:
        raise ValueError(f"an error of the mean needs {2 * NUM_BLOCKS} values or more, got {n}")
    length = n // NUM_BLOCKS
    sums = np.cumsum(np.concatenate([[0.0], values, values[: length - 1]]))
    means = (sums[length:] - sums[:-length]) / length
    spread = float(np.square(means - values.mean()).mean())
    blocks = n / length
    time = correlation_time(values)
    error = math.sqrt(spread / (blocks - 1))
    return MeanError(error, NUM_BLOCKS - 1, time, n >= _LIVES_NEEDED * time)


@dataclass(frozen=True, slots=True)
class BatchMeans:
    """The interval of a correlated series' mean from the means of its blocks.

    `is_reliable`: the series is many of its correlation times long.
    """

    interval: Interval
    num_batches: int
    correlation_time: float
    is_reliable: bool


def batch_means(values: FloatArray, confidence: float = 0.95) -> BatchMeans:
    """The mean of a correlated series with its interval, of the logarithm where all are positive.

    Latencies have long tails: about the logarithm the interval reaches farther up than down.
    At least 20 values.
    """
    found = mean_error(values)
    mean = float(values.mean())
    reach = t_factor(confidence, found.degrees_of_freedom) * found.error
    low, high = mean - reach, mean + reach
    if (values > 0).all():
        low, high = mean * math.exp(-reach / mean), mean * math.exp(reach / mean)
    interval = Interval(mean, low, high, confidence)
    return BatchMeans(interval, NUM_BLOCKS, found.correlation_time, found.is_reliable)


def correlation_time(values: FloatArray) -> float:
    """The integrated autocorrelation time, in values: 1 where they are independent.

    One and twice the sum of the autocorrelation until it first falls below 0.05, over at most a
    quarter of the series.
    """
    n = len(values)
    centred = values - values.mean()
    if not centred.any():
        return 1.0
    spectrum = np.abs(np.fft.rfft(centred, 2 * n)) ** 2
    correlation = np.fft.irfft(spectrum)[: max(2, n // 4)]
    correlation = correlation / correlation[0]
    small = np.flatnonzero(correlation < 0.05)
    until = int(small[0]) if len(small) else len(correlation)
    return 1 + 2 * float(correlation[1:until].sum())


def block_length(values: FloatArray) -> int:
    """Length of blocks for a bootstrap of percentiles.

    Twice the correlation time, at least n^(1/3) and at most n / 10.
    """
    n = len(values)
    shortest: int = max(1, round(n ** (1 / 3)))
    wanted: int = round(2 * correlation_time(values))
    return min(max(wanted, shortest), max(1, n // 10))


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
