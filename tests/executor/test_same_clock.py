"""Executor and simulation are the same engine: with the same step times they end alike."""

import pytest

from calibration import ProfileCost
from calibration.bench.step_batch import StepBatch
from sim.executor.executor import Executor
from sim.executor.runner import Ready
from sim.rng import Streams
from sim.scheduler.config import SchedulerConfig
from sim.validate.executor_study import make_loads, request_times
from sim.validate.load_study import Machine, predict
from tests.executor.test_executor_study import machine

__all__ = ["machine"]  # the fixture

SCHEDULER = SchedulerConfig(max_num_seqs=8, max_num_batched_tokens=64, max_model_len=256)


class ModelClock:
    """A clock that only the model moves, by the time the profile gives for each batch."""

    def __init__(self, machine: Machine) -> None:
        self._cost, self._host = ProfileCost(machine.profile), machine.host
        self.restart()

    def restart(self) -> None:
        self._now_s = 0.0

    def now_s(self) -> float:
        return self._now_s

    def wait_until(self, at_s: float) -> None:
        self._now_s = max(self._now_s, at_s)

    def prepare(self, batch: StepBatch) -> Ready:
        return lambda: self.run(batch)

    def run(self, batch: StepBatch) -> list[int]:
        self._now_s += self._host.step_s(len(batch.pieces)) + self._cost.step_time_s(batch.shape)
        return [0] * len(batch.logit_rows)


@pytest.mark.parametrize("load_number", [0, 1, 2])
def test_every_request_ends_at_the_simulated_instant(machine: Machine, load_number: int) -> None:
    load = make_loads(machine, SCHEDULER, 16, 80, Streams(2).rng("loads"))[load_number]
    clock = ModelClock(machine)
    run = Executor(load.scheduler, load.cache, clock, clock).serve(
        load.trace, 10, Streams(0).rng("prompts")
    )
    predicted = predict(machine, load)
    for metric, executed in request_times(run.requests).items():
        assert executed == pytest.approx(predicted[metric], abs=1e-9, nan_ok=True), metric
    if load_number == 2:
        assert sum(step.num_preempted for step in run.steps) > 0
