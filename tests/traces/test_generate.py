"""Generated traces, against the moments of the distributions that they claim."""

import math
from typing import Any

import numpy as np
import pytest

from traces import (
    EmpiricalLengths,
    FixedLengths,
    GammaArrivals,
    Lognormal,
    LognormalLengths,
    PoissonArrivals,
    SystemPrompts,
    Trace,
    TraceError,
    generate,
)


def rng(seed: int = 1) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


def made(**changes: Any) -> Trace:
    options: dict[str, Any] = {
        "num_requests": 20_000,
        "arrivals": PoissonArrivals(rate_per_s=4.0),
        "lengths": FixedLengths(100, 10),
        "rng": rng(),
    }
    return generate(**(options | changes))


@pytest.mark.parametrize(
    ("arrivals", "cv"),
    [
        (PoissonArrivals(4.0), 1.0),
        (GammaArrivals(4.0, cv=1.0), 1.0),
        (GammaArrivals(4.0, cv=2.5), 2.5),
        (GammaArrivals(4.0, cv=0.3), 0.3),
    ],
)
def test_gaps_have_the_rate_and_cv(arrivals: Any, cv: float) -> None:
    trace = made(arrivals=arrivals)
    gaps = np.diff(trace.arrival_s)
    assert trace.arrival_s[0] == 0.0
    # the mean of n gaps has standard error mean * cv / sqrt(n); four of them
    assert gaps.mean() == pytest.approx(0.25, rel=4 * cv / math.sqrt(len(gaps)))
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.08)


def test_poisson_counts_have_variance_equal_to_mean() -> None:
    counts = np.bincount(made().arrival_s.astype(np.int64))[:-1]
    assert counts.mean() == pytest.approx(4.0, rel=0.03)
    assert counts.var() / counts.mean() == pytest.approx(1.0, abs=0.1)


def test_lognormal_lengths_have_median_and_spread() -> None:
    lengths = LognormalLengths(Lognormal(600, 1.1), Lognormal(190, 0.8, lowest=50, highest=400))
    trace = made(lengths=lengths)
    assert np.median(trace.num_prompt_tokens) == pytest.approx(600, rel=0.04)
    assert np.log(trace.num_prompt_tokens).std() == pytest.approx(1.1, rel=0.03)
    assert trace.num_prompt_tokens.mean() == pytest.approx(600 * math.exp(1.1**2 / 2), rel=0.06)
    assert trace.num_output_tokens.min() == 50
    assert trace.num_output_tokens.max() == 400


def test_empirical_pairs_stay_together() -> None:
    recorded = Trace.from_columns([0, 1, 2], [10, 20, 30], [1, 2, 3])
    trace = made(lengths=EmpiricalLengths(recorded), num_requests=3_000)
    assert np.array_equal(trace.num_prompt_tokens, 10 * trace.num_output_tokens)
    assert np.bincount(trace.num_output_tokens)[1:] == pytest.approx([1_000] * 3, abs=130)


def test_system_prompts_have_share_weights_and_lengths() -> None:
    trace = made(system_prompts=SystemPrompts(0.4, (900, 420, 50), zipf_exponent=1.0))
    assert trace.prompts is not None
    firsts = [prompt[0] for prompt in trace.prompts if prompt]
    assert len(firsts) / len(trace) == pytest.approx(0.4, abs=0.015)
    assert set(firsts) == {("system-0", 900), ("system-1", 420), ("system-2", 50)}
    shares = [sum(each[1] == length for each in firsts) / len(firsts) for length in (900, 420, 50)]
    assert shares == pytest.approx([6 / 11, 3 / 11, 2 / 11], abs=0.025)
    own = [prompt[1] for prompt in trace.prompts if prompt]
    assert {tokens for _, tokens in own} == {100}
    assert len({segment_id for segment_id, _ in own}) == len(own)


def test_priorities_are_mixed_by_weight() -> None:
    trace = made(priority_weights={1: 1.0, -1: 3.0})
    assert set(trace.priority.tolist()) == {-1, 1}
    assert (trace.priority == -1).mean() == pytest.approx(0.75, abs=0.015)
    swapped = made(priority_weights={-1: 3.0, 1: 1.0})
    assert swapped.content_sha256 == trace.content_sha256


def test_same_seed_same_trace_and_other_seed_another() -> None:
    options = {"system_prompts": SystemPrompts(0.5, (10, 20)), "priority_weights": {0: 1, 1: 1}}
    digests = [made(num_requests=50, rng=rng(s), **options).content_sha256 for s in (1, 1, 2)]
    assert digests[0] == digests[1] != digests[2]


def test_parts_draw_apart() -> None:
    lengths = LognormalLengths(Lognormal(600, 1.1), Lognormal(190, 0.8))
    poisson = made(lengths=lengths)
    gamma = made(lengths=lengths, arrivals=GammaArrivals(9.0, 2.0))
    assert np.array_equal(poisson.num_prompt_tokens, gamma.num_prompt_tokens)
    assert np.array_equal(poisson.arrival_s, made(num_requests=20_000).arrival_s)


def test_one_request() -> None:
    assert made(num_requests=1).arrival_s.tolist() == [0.0]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: made(num_requests=0), ["num_requests", "0"]),
        (lambda: PoissonArrivals(0.0), ["rate_per_s", "0.0"]),
        (lambda: PoissonArrivals(math.inf), ["rate_per_s", "inf"]),
        (lambda: GammaArrivals(1.0, -1.0), ["cv", "-1.0"]),
        (lambda: GammaArrivals(math.nan, 1.0), ["rate_per_s", "nan"]),
        (lambda: FixedLengths(0, 1), ["num_prompt_tokens", "0"]),
        (lambda: Lognormal(-5, 1), ["median", "-5"]),
        (lambda: Lognormal(5, math.nan), ["sigma", "nan"]),
        (lambda: Lognormal(5, 1, lowest=9, highest=8), ["lowest", "9", "8"]),
        (lambda: SystemPrompts(1.5, (10,)), ["share", "1.5"]),
        (lambda: SystemPrompts(0.5, ()), ["num_tokens"]),
        (lambda: SystemPrompts(0.5, (0,)), ["num_tokens", "0"]),
        (lambda: SystemPrompts(0.5, (1,), -1.0), ["zipf_exponent", "-1.0"]),
        (lambda: made(priority_weights={0: -1.0}), ["priority_weights", "-1.0"]),
        (lambda: made(priority_weights={0: 0.0}), ["priority_weights"]),
    ],
)
def test_bad_parameters_are_refused(make: Any, words: list[str]) -> None:
    with pytest.raises(TraceError) as caught:
        make()
    for word in words:
        assert word in str(caught.value)
