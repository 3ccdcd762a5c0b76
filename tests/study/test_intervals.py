"""Intervals against textbook values, and their coverage where the truth is known."""

import math

import numpy as np
import pytest
from scipy.stats import t

from sim.study.intervals import (
    batch_means,
    block_indices,
    block_length,
    correlation_time,
    mean_error,
    t_interval,
    values_needed,
)


def normal(seed):
    return np.random.Generator(np.random.PCG64(seed))


def autoregressive(rho, n, rng):
    """AR(1) with variance 1 and mean 0: the integrated autocorrelation time is known."""
    noise = rng.standard_normal(n) * math.sqrt(1 - rho * rho)
    x = np.empty(n)
    x[0] = rng.standard_normal()
    for i in range(1, n):
        x[i] = rho * x[i - 1] + noise[i]
    return x


def test_the_t_interval_is_the_textbook_one():
    found = t_interval(np.array([1.0, 2.0, 3.0, 4.0, 5.0]))
    # t(0.975, 4) = 2.776 (any table); s = 1.5811; s / sqrt(5) = 0.7071
    assert found.estimate == 3.0
    assert found.half_width == pytest.approx(2.776 * 0.70711, rel=1e-3)
    assert found.holds(1.5) and not found.holds(5.1)


def test_one_value_says_nothing_of_the_spread():
    assert t_interval(np.array([4.0])).half_width == math.inf
    assert values_needed(np.array([4.0]), 1.0) is None


def test_values_needed_is_the_smallest_that_is_precise_enough():
    values = np.array([-1.0, 1.0] * 10)
    spread = values.std(ddof=1)
    for wanted in (3.0, 0.5, 0.1, 0.01):
        n = values_needed(values, wanted)

        def half_width(count):

            return t.ppf(0.975, count - 1) * spread / math.sqrt(count)

        assert half_width(n) <= wanted
        assert n == 2 or half_width(n - 1) > wanted


def test_batch_means_cover_the_mean_of_a_correlated_series():
    """A plain t interval covers it a third of the time; batch means as often as they say.

    5 % of 1,500 is 3.5 to 6.5 % but for one chance in a hundred.
    """
    rng, plain, missed = normal(3), 0, 0
    for _ in range(1500):
        x = autoregressive(0.9, 3000, rng)
        plain += t_interval(x).holds(0.0)
        missed += not batch_means(x).interval.holds(0.0)
    assert plain / 1500 < 0.5
    assert 0.035 <= missed / 1500 <= 0.065


def test_batch_means_of_independent_values_are_the_textbook_error():
    """sigma / sqrt(n), on average over series."""
    rng = normal(4)
    errors = [mean_error(rng.standard_normal(400)).error for _ in range(400)]
    assert math.sqrt(np.mean(np.square(errors))) == pytest.approx(1 / 20, rel=0.05)


def test_the_interval_of_latencies_reaches_farther_up():
    """Of the logarithm: its ends are the mean divided and multiplied by one factor."""
    interval = batch_means(np.exp(normal(5).standard_normal(500))).interval
    assert interval.high * interval.low == pytest.approx(interval.estimate**2)
    assert interval.high - interval.estimate > interval.estimate - interval.low > 0


def test_batch_means_say_when_a_run_is_too_short_for_its_correlation():
    reliable = [batch_means(autoregressive(0.999, 500, normal(s))).is_reliable for s in range(40)]
    assert np.mean(reliable) < 0.05
    assert batch_means(autoregressive(0.9, 5000, normal(1))).is_reliable


def test_too_few_values_for_batches_are_refused():
    with pytest.raises(ValueError, match="20 values"):
        batch_means(np.ones(19))


def test_the_correlation_time_of_a_known_series():
    """(1 + rho) / (1 - rho) for a first-order series."""
    assert correlation_time(autoregressive(0.9, 200_000, normal(1))) == pytest.approx(19, rel=0.1)
    assert correlation_time(normal(1).standard_normal(20_000)) == pytest.approx(1, abs=0.1)
    assert correlation_time(np.ones(10)) == 1.0


def test_blocks_are_longer_where_correlation_lasts_longer():
    lengths = [block_length(autoregressive(rho, 20000, normal(1))) for rho in (0.0, 0.9, 0.98)]
    assert lengths[0] == round(20000 ** (1 / 3))
    # twice (1 + rho) / (1 - rho): 38 and 198
    assert 28 <= lengths[1] <= 50
    assert 120 <= lengths[2] <= 300
    assert block_length(np.ones(1000)) == 10


def test_block_resamples_are_of_consecutive_rows():
    rows = block_indices(10, 4, 50, normal(2))
    assert rows.shape == (50, 10)
    steps = np.diff(rows, axis=1) % 10
    inside = np.ones(9, dtype=bool)
    inside[[3, 7]] = False  # where a new block begins
    assert (steps[:, inside] == 1).all()
