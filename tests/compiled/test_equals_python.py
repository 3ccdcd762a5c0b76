"""The compiled core gives the rows of the Python replicas, stepping and leaping, bit for bit."""

from __future__ import annotations

import gc
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from calibration import (
    LinearCost,
    RooflineCost,
    StepShape,
    decode_shape,
    later_shape,
    load_gpu,
    load_model,
)
from sim._core import native
from sim.config import OpenLoad, ResolvedStudy, SessionLoad
from sim.run_result import RunResult
from sim.scheduler.config import CacheConfig, SchedulerConfig
from sim.simulation import simulate
from tests.calibration.cost_models import every_cost_model
from tests.sim.small_study import make_study, run_unless_endless
from tests.sim.test_leap_equals_stepping import differences, loads, options, workloads
from traces import RequestSpec

pytestmark = pytest.mark.skipif(native is None, reason="the compiled core is not built here")


def compiled(study: ResolvedStudy) -> ResolvedStudy:
    return replace(study, engine=replace(study.engine, core="compiled"))


class AskedInPython(LinearCost):
    """A formula that the core does not know."""

    def step_time_s(self, shape: StepShape) -> float:
        return super().step_time_s(shape) * (1.0 + shape.num_decodes % 3)

    def decode_times_s(
        self,
        num_decodes: int,
        decode_context_tokens: int,
        num_steps: int,
        decode_max_context_tokens: int = 0,
    ) -> Any:
        first = decode_shape(num_decodes, decode_context_tokens, decode_max_context_tokens)
        return np.array([self.step_time_s(later_shape(first, i)) for i in range(num_steps)])


class SkewAskedInPython(AskedInPython):
    """The same with a part for the longest context."""

    def step_time_s(self, shape: StepShape) -> float:
        return super().step_time_s(shape) * (1.0 + shape.decode_max_context_tokens % 7)


COSTS = {
    "roofline": RooflineCost(load_model("llama-3.2-1b"), load_gpu("l4")),
    "profile": every_cost_model()["profile"],
    "skewed profile": every_cost_model()["profile-3"],
    "asked in Python": AskedInPython(0.01, 1e-4, 1e-6, 1e-5),
    "skew asked in Python": SkewAskedInPython(0.01, 1e-4, 1e-6, 1e-5),
}


def same(study: ResolvedStudy) -> RunResult | None:
    """What both cores give; None if requests preempt each other for ever on both."""
    ours, theirs = run_unless_endless(compiled(study)), run_unless_endless(study)
    if ours is None or theirs is None:
        assert ours is theirs
        return None
    assert differences(ours, theirs) == []
    assert ours.info == theirs.info
    for table in ("requests", "steps", "gaps"):
        dtypes = [{n: c.dtype for n, c in getattr(r, table).items()} for r in (ours, theirs)]
        assert dtypes[0] == dtypes[1]
        assert list(dtypes[0]) == list(dtypes[1])
    return ours


@settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(workloads(), options(), st.data())
def test_same_rows(
    requests: list[RequestSpec], chosen: dict[str, Any], data: st.DataObject
) -> None:
    load = data.draw(loads(len(requests)))
    same(make_study(requests, **chosen, load=load, leap=False))


@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(workloads(), options(), st.sampled_from(sorted(COSTS)), st.data())
def test_same_rows_with_every_cost_model(
    requests: list[RequestSpec], chosen: dict[str, Any], cost: str, data: st.DataObject
) -> None:
    load = data.draw(loads(len(requests)))
    same(make_study(requests, **{**chosen, "cost": COSTS[cost]}, load=load, leap=False))


@st.composite
def conversations(draw: st.DrawFn) -> list[RequestSpec]:
    """Turns that go on from what the turn before them generated, or was to generate."""
    specs: list[RequestSpec] = []
    for session in range(draw(st.integers(1, 6))):
        prompt: tuple[Any, ...] = (("system", draw(st.integers(1, 30))),)
        parent = None
        arrival_s = draw(st.floats(0, 4))
        for _ in range(draw(st.integers(1, 4))):
            prompt = (*prompt, (len(specs) + 1000, draw(st.integers(1, 25))))
            num_output = draw(st.integers(1, 30))
            spec = RequestSpec(
                request_id=len(specs),
                arrival_s=arrival_s,
                num_prompt_tokens=sum(n for _, n in prompt),
                num_output_tokens=num_output,
                prompt=prompt,
                priority=draw(st.integers(0, 1)),
                session_id=f"s{session}",
                parent_id=parent,
                think_time_s=draw(st.sampled_from([0.0, 0.0, 0.03125, 0.3])),
            )
            specs.append(spec)
            parent = spec.request_id
            arrival_s += draw(st.sampled_from([0.0, 0.1, 1.0]))
            prompt = (*prompt, (f"out:{parent}", num_output))
    return specs


@settings(
    max_examples=250,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(conversations(), options(), st.sampled_from([None, None, 1, 2]), st.booleans())
def test_same_rows_in_conversations(
    requests: list[RequestSpec], chosen: dict[str, Any], concurrency: int | None, is_open: bool
) -> None:
    load = OpenLoad() if is_open else SessionLoad(concurrency=concurrency)
    same(make_study(requests, **chosen, load=load, leap=False))


def test_a_caller_may_stop_an_open_run() -> None:
    specs = [RequestSpec(i, i * 0.01, 30, 40) for i in range(3000)]
    study = compiled(
        make_study(specs, SchedulerConfig(), CacheConfig(2000), LinearCost(0.01), leap=True)
    )
    seen: list[Any] = []

    def stop(progress: Any) -> bool:
        seen.append(progress)
        return len(seen) < 2

    result = simulate(study, on_progress=stop)
    assert result.info.partial
    assert len(result.requests["state"]) == 2048
    assert seen[-1].num_done == (result.requests["state"] == "finished").sum()
    assert seen[-1].simulated_s == specs[2047].arrival_s
    assert result.steps["step"].max() > 1000


def test_nothing_is_left_behind() -> None:
    """No reference is kept or lost over many runs."""
    specs = [
        RequestSpec(i, i * 0.01, 60, 20, (("shared", 40), (f"t{i}", 20)), priority=i % 2)
        for i in range(200)
    ]
    cost = AskedInPython(0.01)
    study = compiled(make_study(specs, SchedulerConfig(), CacheConfig(60), cost, leap=True))

    def run() -> int:
        simulate(study)
        gc.collect()
        return len(gc.get_objects())

    run()
    before, count = sys.getrefcount(cost), run()
    for _ in range(5):
        run()
    assert sys.getrefcount(cost) == before
    assert abs(run() - count) < 50
