"""What must change, and how, when a run is changed in a known way."""

from __future__ import annotations

import numpy as np
import pytest

from calibration import LinearCost, RooflineCost
from sim.metrics import ttft_s
from sim.rng import Streams
from sim.run_result import RunResult
from sim.scheduler.config import CacheConfig, SchedulerConfig
from sim.simulation import simulate
from tests.sim.small_study import GPU, MODEL, make_study
from traces import Prompt, RequestSpec

SCHEDULER = SchedulerConfig(max_num_seqs=16, max_num_batched_tokens=512, max_model_len=2048)


def workload(num_requests: int, rate_per_s: float, shared_tokens: int = 0) -> list[RequestSpec]:
    rng = Streams(7).rng("workload")
    arrivals_s = np.cumsum(rng.exponential(1 / rate_per_s, num_requests))
    prompts = rng.integers(20, 400, num_requests)
    outputs = rng.integers(1, 120, num_requests)
    specs = []
    for i in range(num_requests):
        own = int(prompts[i])
        prompt: Prompt = (("system", shared_tokens), (i, own)) if shared_tokens else ()
        specs.append(
            RequestSpec(i, float(arrivals_s[i]), own + shared_tokens, int(outputs[i]), prompt)
        )
    return specs


def run(requests: list[RequestSpec], scale: float = 1.0, **options: object) -> RunResult:
    cost = LinearCost(0.004 * scale, 1e-5 * scale, 1e-8 * scale, 1e-5 * scale)
    cache = options.pop("cache", CacheConfig(300))
    return simulate(make_study(requests, SCHEDULER, cache, cost, **options))  # type: ignore[arg-type]


@pytest.mark.parametrize("async_scheduling", [False, True])
def test_doubling_all_times_doubles_all_durations(async_scheduling: bool) -> None:
    """A factor of 2 is exact in floating point, so every instant doubles exactly."""
    requests = workload(150, 8.0)
    slow = [
        RequestSpec(r.request_id, 2 * r.arrival_s, r.num_prompt_tokens, r.num_output_tokens)
        for r in requests
    ]
    once, twice = run(requests), run(slow, scale=2.0)
    for table in ("requests", "steps"):
        a, b = getattr(once, table), getattr(twice, table)
        for name, column in a.items():
            factor = 2 if name.endswith("_s") else 1
            if column.dtype.kind == "f":
                assert np.array_equal(column * factor, b[name], equal_nan=True), name
            else:
                assert np.array_equal(column, b[name]), name


def test_more_replicas_never_lower_throughput_at_saturation() -> None:
    """All requests at once: the more replicas, the sooner the last one is done."""
    requests = [
        RequestSpec(r.request_id, 0.0, r.num_prompt_tokens, r.num_output_tokens)
        for r in workload(200, 1.0)
    ]
    makespans = [float(run(requests, num_replicas=n).steps["end_s"].max()) for n in (1, 2, 3, 4, 8)]
    assert makespans == sorted(makespans, reverse=True)
    # Twice the replicas can at best halve the time.
    assert makespans[1] >= makespans[0] / 2 * 0.99


def test_prefix_hits_shorten_the_first_token() -> None:
    """The same load with a shared system prompt: caching it lowers every percentile of TTFT."""
    requests = workload(150, 6.0, shared_tokens=320)
    with_hits = run(requests, cache=CacheConfig(2000))
    without = run(requests, cache=CacheConfig(2000, enable_prefix_caching=False))
    hits = with_hits.requests["num_cached_tokens"]
    assert (hits[1:] >= 320).mean() > 0.95 and not without.requests["num_cached_tokens"].any()
    for percent in (10, 50, 90, 99):
        fast = np.percentile(ttft_s(with_hits.requests), percent)
        assert fast < np.percentile(ttft_s(without.requests), percent)


def test_a_larger_pool_never_preempts_more_in_a_burst() -> None:
    """With blocks for everybody nobody is preempted; with few, many are, and work is redone."""
    requests = [
        RequestSpec(r.request_id, 0.0, r.num_prompt_tokens, 100 + r.num_output_tokens)
        for r in workload(40, 1.0)
    ]
    starved, roomy = run(requests, cache=CacheConfig(60)), run(requests, cache=CacheConfig(2000))
    assert starved.requests["num_preemptions"].sum() > 0
    assert roomy.requests["num_preemptions"].sum() == 0
    assert (
        starved.requests["num_scheduled_tokens"].sum()
        > roomy.requests["num_scheduled_tokens"].sum()
    )
    assert starved.steps["end_s"].max() > roomy.steps["end_s"].max()


def test_twice_the_gpu_is_never_slower() -> None:
    """The roofline at tensor parallel 2 moves half the weights: steps are shorter."""
    requests = workload(60, 4.0)
    cache = CacheConfig(2000)
    ends = [
        simulate(make_study(requests, SCHEDULER, cache, RooflineCost(MODEL, GPU, tp)))
        .steps["end_s"]
        .max()
        for tp in (1, 2)
    ]
    assert ends[1] < ends[0]
