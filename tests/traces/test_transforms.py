"""Transforms change what they name and nothing else."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traces import Trace, TraceError, limit, scale_rate, with_poisson_arrivals

TRACE = Trace.from_columns(
    [0.0, 1.0, 1.0, 4.0],
    [10, 20, 30, 40],
    [1, 2, 3, 4],
    request_id=[0, 5, 7, 9],
    priority=[0, 1, 0, -1],
    prompts=[(), (("a", 20),), (), (("a", 25), (3, 15))],
)


def contents(trace: Trace) -> list[tuple[object, ...]]:
    return [
        (r.request_id, r.num_prompt_tokens, r.num_output_tokens, r.prompt, r.priority)
        for r in trace
    ]


def test_limit_keeps_the_first() -> None:
    assert list(limit(TRACE, 3)) == list(TRACE)[:3]
    assert list(limit(TRACE, 99)) == list(TRACE)
    assert limit(TRACE, 3).source.transforms == ("limit(num_requests=3)",)


def test_scale_rate_compresses_time() -> None:
    twice = scale_rate(TRACE, 2.0)
    assert twice.arrival_s.tolist() == [0.0, 0.5, 0.5, 2.0]
    assert contents(twice) == contents(TRACE)
    assert scale_rate(TRACE, 1.0).content_sha256 == TRACE.content_sha256
    assert twice.source.transforms == ("scale_rate(factor=2.0)",)


@given(
    arrivals=st.lists(st.floats(0, 1e9), min_size=1, max_size=20),
    factor=st.floats(1e-6, 1e6),
)
def test_scale_rate_keeps_every_request(arrivals: list[float], factor: float) -> None:
    ones = [1] * len(arrivals)
    trace = Trace.from_columns(arrivals, ones, ones)
    scaled = scale_rate(trace, factor)
    assert sorted(scaled.request_id) == sorted(trace.request_id)
    times = dict(zip(trace.request_id, trace.arrival_s / factor, strict=True))
    assert all(times[i] == t for i, t in zip(scaled.request_id, scaled.arrival_s, strict=True))


def test_poisson_arrivals_keep_order_and_content() -> None:
    rng = np.random.Generator(np.random.PCG64(3))
    moved = with_poisson_arrivals(TRACE, 2.0, rng)
    assert contents(moved) == contents(TRACE)
    assert moved.arrival_s[0] == 0.0
    assert moved.source.transforms == ("with_poisson_arrivals(rate_per_s=2.0)",)
    again = with_poisson_arrivals(TRACE, 2.0, np.random.Generator(np.random.PCG64(3)))
    assert again.content_sha256 == moved.content_sha256


def test_transforms_are_noted_in_order() -> None:
    noted = scale_rate(limit(TRACE, 2), 4.0).source.transforms
    assert noted == ("limit(num_requests=2)", "scale_rate(factor=4.0)")
    assert TRACE.source.transforms == ()


@pytest.mark.parametrize("factor", [0.0, -1.0, float("nan"), float("inf"), 5e-324])
def test_bad_factor(factor: float) -> None:
    with pytest.raises(TraceError, match="factor"):
        scale_rate(TRACE, factor)


def test_bad_limit_and_rate() -> None:
    with pytest.raises(TraceError, match="limit: 0"):
        limit(TRACE, 0)
    with pytest.raises(TraceError, match="rate_per_s"):
        with_poisson_arrivals(TRACE, 0.0, np.random.Generator(np.random.PCG64(3)))
