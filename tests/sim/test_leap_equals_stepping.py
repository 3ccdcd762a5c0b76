"""Leaps are exact: on any workload they give the rows that stepping gives, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from calibration import ConstantCost, LinearCost
from sim.checks import check_run
from sim.config import ClosedLoad, Load, OpenLoad
from sim.run_result import Columns, RunResult
from sim.scheduler.config import CacheConfig, SchedulerConfig
from sim.simulation import simulate
from tests.calibration.cost_models import every_cost_model
from tests.sim.small_study import make_study, run_unless_endless
from traces import RequestSpec

ROUTERS = ["round-robin", "random", "least-outstanding-requests", "least-outstanding-tokens"]
SKEWED = every_cost_model()["profile-3"]  # steps cost by their longest context too


def differences(ours: RunResult, theirs: RunResult) -> list[str]:
    """Columns in which two runs differ; times must be equal to the last bit."""
    found: list[str] = []
    for table in ("requests", "steps", "gaps"):
        a: Columns = getattr(ours, table)
        b: Columns = getattr(theirs, table)
        for name in a:
            same = len(a[name]) == len(b[name]) and all(
                np.array_equal(x, y, equal_nan=x.dtype.kind == "f") for x, y in [(a[name], b[name])]
            )
            if not same:
                found.append(f"{table}.{name}")
    return found


prompts = st.one_of(
    st.integers(1, 120).map(lambda n: (n, ())),
    st.tuples(st.integers(0, 2), st.integers(1, 80), st.integers(1, 60)).map(
        lambda t: (t[1] + t[2], ((f"shared{t[0]}", t[1]), (f"own{t}", t[2])))
    ),
)


@st.composite
def workloads(draw: st.DrawFn) -> list[RequestSpec]:
    specs = []
    # Few distinct instants, so that arrivals fall together with each other and with step ends.
    instants = st.one_of(st.integers(0, 12).map(float), st.floats(0, 12))
    for index in range(draw(st.integers(1, 22))):
        num_prompt, segments = draw(prompts)
        specs.append(
            RequestSpec(
                request_id=index,
                arrival_s=draw(instants),
                num_prompt_tokens=num_prompt,
                num_output_tokens=draw(st.integers(1, 60)),
                prompt=segments,
                priority=draw(st.integers(0, 2)),
            )
        )
    return specs


@st.composite
def options(draw: st.DrawFn) -> dict[str, Any]:
    max_num_seqs = draw(st.sampled_from([1, 2, 4, 32]))
    scheduler = SchedulerConfig(
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=draw(st.sampled_from([32, 40, 64, 200])),
        max_num_scheduled_tokens=draw(st.sampled_from([None, None, 5, 33])),
        max_model_len=draw(st.sampled_from([60, 128, 200])),
        policy=draw(st.sampled_from(["fcfs", "priority"])),
        long_prefill_token_threshold=draw(st.sampled_from([0, 0, 7, 20])),
        scheduler_reserve_full_isl=draw(st.booleans()),
        watermark=draw(st.sampled_from([0.0, 0.0, 0.1, 0.3])),
        async_scheduling=draw(st.booleans()),
    )
    cache = CacheConfig(
        num_gpu_blocks=draw(st.integers(6, 60)),
        block_size=draw(st.sampled_from([4, 8, 16])),
        enable_prefix_caching=draw(st.booleans()),
    )
    cost = draw(
        st.sampled_from(
            # Steps of 2^-5 s end at the instants of arrivals, and on all replicas at once.
            [ConstantCost(0.03125), LinearCost(0.01, 1e-4, 1e-6, 1e-5), SKEWED]
        )
    )
    overhead = draw(st.sampled_from([0.0, 0.0, 0.004, 0.03125, 0.05]))
    return {
        "scheduler": scheduler,
        "cache": cache,
        "cost": cost,
        "engine": {"host_overhead_s": overhead, "host_overhead_per_request_s": overhead / 64},
        "num_replicas": draw(st.integers(1, 3)),
        "router": draw(st.sampled_from(ROUTERS)),
        "until_s": draw(st.sampled_from([None, None, 1.0, 3.7])),
    }


def loads(num_requests: int) -> st.SearchStrategy[Load]:
    def closed(concurrency: int, ramp_s: float, delay_s: float) -> Load:
        concurrency = min(concurrency, num_requests)
        return ClosedLoad(concurrency, num_requests // concurrency, ramp_s, delay_s)

    return st.one_of(
        st.just(OpenLoad()),
        st.builds(
            closed,
            st.integers(1, 6),
            st.sampled_from([0.0, 0.5]),
            st.sampled_from([0.0, 0.0, 0.03125, 0.01]),
        ),
    )


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(workloads(), options(), st.data())
def test_leaps_give_the_rows_of_stepping(
    requests: list[RequestSpec], chosen: dict[str, Any], data: st.DataObject
) -> None:
    load = data.draw(loads(len(requests)))
    leaping = run_unless_endless(make_study(requests, **chosen, load=load, leap=True))
    stepping = run_unless_endless(make_study(requests, **chosen, load=load, leap=False))
    if leaping is None or stepping is None:
        assert leaping is stepping
        return
    assert differences(leaping, stepping) == []
    assert [outcome for outcome in check_run(leaping) if not outcome.ok] == []


@pytest.mark.parametrize("async_scheduling", [False, True])
def test_long_decodes_are_leapt_over(async_scheduling: bool) -> None:
    """The steps of a lone request take a few events, not one each."""
    scheduler = SchedulerConfig(max_model_len=4096, async_scheduling=async_scheduling)
    study = make_study(
        [RequestSpec(0, 0.0, 16, 4000)],
        scheduler,
        CacheConfig(400),
        ConstantCost(0.01),
        leap=True,
    )
    calls: list[int] = []

    class Counting(ConstantCost):
        def step_time_s(self, shape: Any) -> float:
            calls.append(1)
            return super().step_time_s(shape)

    counted = make_study(
        [RequestSpec(0, 0.0, 16, 4000)],
        scheduler,
        CacheConfig(400),
        Counting(0.01),
        leap=True,
    )
    result = simulate(counted)
    assert len(result.steps["step"]) == 4000
    assert len(calls) <= 3
    assert differences(result, simulate(study)) == []
