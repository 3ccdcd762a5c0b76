"""Executor and simulation compared: on runs made by hand, and in errors of the command."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import calibration.bench
from calibration import ModelSpec, ProfileCost, StepShape, parse_profile
from calibration.bench.reference_model import REFERENCE_MODEL
from sim.cli.app import run_app
from sim.engine import HostOverhead
from sim.executor.executor import ExecutedRun, ExecutedStep
from sim.rng import Streams
from sim.scheduler.config import CacheConfig, SchedulerConfig
from sim.sim_request import SimRequest
from sim.validate.executor_study import compare, make_loads
from sim.validate.load_study import Load, Machine, predict
from tests.calibration.cost_models import profile_document
from traces import Trace

SCHEDULER = SchedulerConfig(max_num_seqs=8, max_num_batched_tokens=64, max_model_len=256)
MODEL: ModelSpec = REFERENCE_MODEL


@pytest.fixture(scope="module")
def machine() -> Machine:
    """5 ms and 20 us a token and more: the times of the contract tests' straight lines."""
    return Machine(MODEL, parse_profile(profile_document(), "p.json"), HostOverhead(1e-3, 1e-4))


def one_request(machine: Machine) -> tuple[Load, ExecutedRun]:
    """A prompt of 20, three outputs, alone: three steps, executed exactly as predicted."""
    trace = Trace.from_columns(np.zeros(1), np.array([20]), np.array([3]))
    load = Load("one", trace, SCHEDULER, CacheConfig(40, 16))
    times = predict(machine, load)
    request = SimRequest(0, 20, 3)
    request.num_output_tokens = 3
    request.first_token_s = times["TTFT"][0]
    request.last_token_s = times["E2E"][0]
    steps = []
    for shape in (
        StepShape(20, 1, 0, 0, ((20, 0),)),
        StepShape(1, 1, 1, 21),
        StepShape(1, 1, 1, 22),
    ):
        time_s = machine_time(machine, shape)
        steps.append(ExecutedStep(shape, 0.0, time_s, 1.1e-3, 1, 0, is_after_idle=False))
    return load, ExecutedRun([request], steps)


def machine_time(machine: Machine, shape: StepShape) -> float:
    return ProfileCost(machine.profile).step_time_s(shape)


def test_a_run_that_is_as_predicted_has_no_error(machine: Machine) -> None:
    load, run = one_request(machine)
    comparison = compare(machine, load, [run, run])
    assert comparison.steps.mape == pytest.approx(0.0, abs=1e-12)
    assert comparison.host_error == pytest.approx(0.0, abs=1e-9)
    for item in comparison.statistics:
        assert item.error == pytest.approx(0.0, abs=1e-9)
        assert item.noise == pytest.approx(0.0, abs=1e-9)


def test_simulated_times_add_up_by_hand(machine: Machine) -> None:
    load, run = one_request(machine)
    steps_s = [step.end_s for step in run.steps]
    times = predict(machine, load)
    assert times["TTFT"][0] == pytest.approx(steps_s[0] + 1.1e-3)
    assert times["E2E"][0] == pytest.approx(sum(steps_s) + 3 * 1.1e-3)
    assert times["TPOT"][0] == pytest.approx((sum(steps_s[1:]) + 2 * 1.1e-3) / 2)


def test_a_slower_machine_shows_as_an_error_of_its_size(machine: Machine) -> None:
    load, run = one_request(machine)
    slow = [step._replace(end_s=1.25 * step.end_s) for step in run.steps]
    comparison = compare(machine, load, [replace(run, steps=slow)])
    assert comparison.steps.bias == pytest.approx(-0.2)
    assert comparison.steps.total_error == pytest.approx(-0.2)
    assert all(np.isnan(item.noise) for item in comparison.statistics)


def test_loads_go_from_light_to_starved(machine: Machine) -> None:
    light, busy, starved = make_loads(machine, SCHEDULER, 16, 60, Streams(0).rng("loads"))
    assert busy.trace.duration_s < light.trace.duration_s
    assert starved.cache.num_gpu_blocks < busy.cache.num_gpu_blocks
    comparison = compare(machine, starved, [one_request(machine)[1]])
    assert comparison.num_preemptions[1] > 0


def test_a_clock_that_does_not_fit_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_app(["validate", "executor", "--clock", "sun"]) == 2
    assert "--clock is 'sun'" in capsys.readouterr().err
    assert run_app(["validate", "executor", "--clock", "cpu", "--threads", "2"]) == 2
    assert "one thread" in capsys.readouterr().err


def test_without_torch_the_commands_say_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in sys.modules if name.startswith("calibration.bench.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr(calibration.bench, "bench_run", raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert run_app(["calibrate"]) == 2
    assert "pip install 'headway[bench]'" in capsys.readouterr().err
