"""A run that `until_s` cuts inside a step: what is under way has no row, and the checks hold."""

import pytest

from calibration import ConstantCost
from sim.checks import check_run
from sim.scheduler.config import CacheConfig, SchedulerConfig
from sim.simulation import simulate
from tests.sim.small_study import make_study
from traces import RequestSpec


@pytest.mark.parametrize("is_async", [False, True])
def test_a_prefix_hit_of_the_step_under_way_is_no_fault(is_async: bool) -> None:
    prompts = [(("same", 8), (f"own{row}", 4)) for row in range(2)]
    specs = [RequestSpec(row, 0.0, 12, 3, prompt) for row, prompt in enumerate(prompts)]
    scheduler = SchedulerConfig(
        max_num_seqs=4, max_num_batched_tokens=64, async_scheduling=is_async
    )
    study = make_study(specs, scheduler, CacheConfig(99, 4), ConstantCost(1.0), until_s=0.5)
    run = simulate(study)
    assert run.requests["num_cached_tokens"].tolist() == [0, 8]
    assert len(run.steps["step"]) == 0
    assert [outcome for outcome in check_run(run) if not outcome.ok] == []
