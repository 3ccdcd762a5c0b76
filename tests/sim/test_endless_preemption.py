"""Requests that preempt each other for ever: the run ends, and says so, on every core alike.

That the workload has no end was confirmed with the scheduler of vLLM 0.29.0, which came to none
on it in thousands of steps either.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from calibration import ConstantCost
from sim._core import native
from sim.config import ClosedLoad, ResolvedStudy
from sim.endless import max_preemptions_in_vain
from sim.errors import SimulationError
from sim.scheduler.config import CacheConfig, SchedulerConfig
from sim.simulation import simulate
from tests.sim.small_study import make_study
from traces import RequestSpec

CORES = ["stepping", "leaping"] + ["compiled"] * (native is not None)
SCHEDULER = SchedulerConfig(
    max_num_seqs=4,
    max_num_batched_tokens=200,
    max_num_scheduled_tokens=33,
    max_model_len=128,
    policy="priority",
    long_prefill_token_threshold=7,
    scheduler_reserve_full_isl=False,
    watermark=0.3,
)
CACHE = CacheConfig(num_gpu_blocks=11, block_size=16, enable_prefix_caching=False)
# Arrival, prompt tokens, output tokens; all of one priority.
REQUESTS = [(1.0, 34, 3), (0.0, 30, 36), (0.0, 61, 48), (0.0, 51, 59)]


def study(core: str, scheduler: SchedulerConfig = SCHEDULER, **others: Any) -> ResolvedStudy:
    specs = [RequestSpec(i, at_s, p, o, priority=1) for i, (at_s, p, o) in enumerate(REQUESTS)]
    made = make_study(
        specs, scheduler, CACHE, ConstantCost(0.03125), leap=core == "leaping", **others
    )
    return replace(
        made, engine=replace(made.engine, core="compiled" if core == "compiled" else "python")
    )


def message(of: ResolvedStudy) -> str:
    with pytest.raises(SimulationError) as found:
        simulate(of)
    return str(found.value)


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("is_async", [True, False])
def test_the_run_ends_and_says_what_would_help(core: str, is_async: bool) -> None:
    scheduler = replace(SCHEDULER, async_scheduling=is_async)
    text = message(study(core, scheduler))
    assert "requests of replica 0 take each other's KV blocks without end" in text
    assert "num_gpu_blocks = 11" in text
    assert "scheduler_reserve_full_isl: true" in text
    assert text == message(study("stepping", scheduler))


@pytest.mark.parametrize("core", CORES)
def test_in_a_closed_load_too(core: str) -> None:
    text = message(study(core, load=ClosedLoad(4, 1, 0.0, 0.0)))
    assert text == message(study("stepping", load=ClosedLoad(4, 1, 0.0, 0.0)))


@pytest.mark.parametrize("core", CORES)
def test_what_it_recommends_helps(core: str) -> None:
    for better in (
        study(core, replace(SCHEDULER, scheduler_reserve_full_isl=True)),
        replace(study(core), engine=replace(study(core).engine, cache=CacheConfig(40, 16))),
    ):
        result = simulate(better)
        assert (result.requests["state"] == "finished").all()


@pytest.mark.parametrize("core", CORES)
def test_no_preemption_before_the_end_was_in_vain_too_often(core: str) -> None:
    """Cut before the limit, the run is an ordinary partial one: nothing of it is an error."""
    end_s = float(message(study(core)).partition(": at ")[2].partition(" s ")[0])
    cut = simulate(study(core, until_s=end_s - 1.0))
    assert (cut.requests["state"] == "unfinished").any()
    last_token = cut.steps["end_s"][cut.steps["num_emitted"] > 0].max()
    in_vain = cut.steps["num_preempted"][cut.steps["end_s"] > last_token].sum()
    assert 0.8 * max_preemptions_in_vain(SCHEDULER) < in_vain <= max_preemptions_in_vain(SCHEDULER)
