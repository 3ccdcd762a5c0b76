"""A run that can't go on says so, and who waits for what; it never ends as if all were well."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from calibration import ConstantCost
from sim._core import native
from sim.config import ResolvedStudy
from sim.errors import SimulationError
from sim.scheduler.config import CacheConfig, SchedulerConfig
from sim.simulation import simulate
from tests.sim.small_study import make_study
from traces import RequestSpec

CORES = [
    "python",
    pytest.param("compiled", marks=pytest.mark.skipif(native is None, reason="not built here")),
]


def blocked(core: str, *, async_scheduling: bool = False, **others: object) -> ResolvedStudy:
    """Request 0 ends; the prompt of request 1 is above the budget of a step, and may not be cut.

    A study file can't say this (it is refused), nor can it be got out of.
    """
    scheduler = SchedulerConfig(
        max_num_scheduled_tokens=30,
        max_num_batched_tokens=512,
        max_model_len=512,
        enable_chunked_prefill=False,
        async_scheduling=async_scheduling,
    )
    requests = [
        RequestSpec(0, 0.0, 20, 3),
        RequestSpec(1, 1.0, 50, 3),
        RequestSpec(2, 2.0, 20, 3),
    ]
    study = make_study(requests, scheduler, CacheConfig(100), ConstantCost(0.1), **others)  # type: ignore[arg-type]
    return replace(study, engine=replace(study.engine, core=core))


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("leap", [True, False])
@pytest.mark.parametrize("async_scheduling", [True, False])
def test_requests_that_wait_for_nothing_end_the_run_with_an_error_that_names_them(
    core: str, leap: bool, async_scheduling: bool
) -> None:
    with pytest.raises(SimulationError) as error:
        simulate(blocked(core, async_scheduling=async_scheduling, leap=leap))
    said = str(error.value)
    assert said.startswith("nothing can happen any more, yet 2 requests are unfinished: ")
    assert re.search(
        r"request 1 on replica 0 is waiting and needs 4 KV blocks, 99 of 99 are free "
        r"\(0 running, 2 waiting\); request 2 on replica 0",
        said,
    )
    assert "request 0" not in said


@pytest.mark.parametrize("core", CORES)
def test_a_stop_after_the_dead_end_does_not_hide_it(core: str) -> None:
    with pytest.raises(SimulationError, match="2 requests are unfinished"):
        simulate(blocked(core, until_s=1000.0))
