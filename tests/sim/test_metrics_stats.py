import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sim.metrics import stats_of, weighted_percentile

VALUE = st.floats(min_value=-1e6, max_value=1e6, allow_nan=False)
WEIGHTED = st.lists(st.tuples(VALUE, st.integers(0, 20)), min_size=1, max_size=30)
PERCENT = st.lists(st.floats(0, 100), min_size=1, max_size=5)


@given(WEIGHTED, PERCENT)
def test_weighted_percentile_is_numpys_on_the_expanded_vector(sample, percents):
    values = np.array([value for value, _ in sample])
    counts = np.array([count for _, count in sample])
    got = weighted_percentile(values, counts, percents)
    if counts.sum() == 0:
        assert np.isnan(got).all()
        return
    expected = np.percentile(np.repeat(values, counts), percents)
    np.testing.assert_array_equal(got, expected)


@given(WEIGHTED)
def test_stats_do_not_depend_on_how_equal_values_are_grouped(sample):
    values = np.array([value for value, _ in sample])
    counts = np.array([count for _, count in sample])
    grouped, expanded = stats_of(values, counts), stats_of(np.repeat(values, counts))
    assert grouped["count"] == expanded["count"]
    for name in ("p50", "p90", "p95", "p99", "max"):
        assert grouped[name] == expanded[name]
    if grouped["count"]:
        np.testing.assert_allclose(grouped["mean"], expanded["mean"], rtol=1e-9, atol=1e-6)


def test_known_percentiles_by_hand():
    # 1..5: rank (n-1)q; p50 at rank 2 is 3, p90 at rank 3.6 is 4.6, p99 at rank 3.96 is 4.96.
    stats = stats_of(np.array([5.0, 1.0, 4.0, 2.0, 3.0]))
    assert stats["count"] == 5
    assert stats["mean"] == 3.0
    assert stats["max"] == 5.0
    assert stats["p50"] == 3.0
    np.testing.assert_allclose([stats["p90"], stats["p95"], stats["p99"]], [4.6, 4.8, 4.96])


def test_billions_of_equal_values_are_counted_and_never_expanded():
    stats = stats_of(np.array([0.01, 0.02]), np.array([3_000_000_000, 1_000_000_000]))
    assert stats["count"] == 4_000_000_000
    assert stats["p50"] == 0.01
    assert stats["p99"] == 0.02
    np.testing.assert_allclose(stats["mean"], 0.0125)


def test_an_empty_sample_has_a_count_and_no_figures():
    stats = stats_of(np.array([]))
    assert stats.pop("count") == 0
    assert set(stats.values()) == {None}


def test_values_of_weight_zero_do_not_exist():
    assert stats_of(np.array([1.0, 99.0]), np.array([2, 0]))["max"] == 1.0
