"""Logs of a real engine: hand-made ones with known answers."""

from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from calibration import ProfileCost, StepShape, parse_profile
from calibration.bench.reference_model import REFERENCE_MODEL
from sim.engine import HostOverhead
from sim.errors import StudyError
from sim.rng import Streams
from sim.scheduler.config import CacheConfig, SchedulerConfig
from sim.validate.engine_log import EngineRun, parse_run, shape_of
from sim.validate.load_study import Load, Machine, predict
from sim.validate.vllm_server import EngineSettings, VllmServer
from sim.validate.vllm_study import (
    at_load,
    compare_runs,
    host_overhead,
    host_times,
    machine_of,
    random_burst,
    shortened,
    workload_of,
)
from tests.calibration.cost_models import profile_document
from traces import Trace

SETTINGS = EngineSettings(max_num_seqs=8, max_num_batched_tokens=64, max_model_len=256)


def step(
    start_s: float, end_s: float, pieces: list[tuple[int, int, int]], **more: object
) -> object:
    return {
        "schedule_s": start_s - 0.001,
        "device_start_s": start_s,
        "device_end_s": end_s,
        "update_end_s": end_s + 0.001,
        "pieces": pieces,
        "preempted": 0,
        "unfinished": 1,
        "received": {},
        **more,
    }


def answer() -> dict[str, object]:
    """A prompt of 20 with three outputs; a second one comes while the first decodes."""
    return {
        "requests": [
            request("1", 10.0, first=10.031, last=10.083, outputs=3),
            request("2", 10.04, first=10.083, last=10.083, outputs=1),
        ],
        "steps": [
            step(10.01, 10.03, [(20, 0, 1)], received={"1": 10.002}),
            step(10.034, 10.05, [(1, 20, 1)]),
            step(10.06, 10.08, [(1, 21, 1), (7, 0, 1)], received={"2": 10.042}, unfinished=0),
        ],
    }


def request(name: str, at_s: float, *, first: float, last: float, outputs: int) -> object:
    return {
        "id": name,
        "arrival_s": at_s,
        "sent_s": at_s + 0.001,
        "first_token_s": first,
        "last_token_s": last,
        "num_output_tokens": outputs,
    }


def test_times_of_requests_are_those_that_the_client_saw() -> None:
    seen = parse_run(answer()).seen_by_client()
    assert seen["TTFT"] == pytest.approx([0.031, 0.043])
    assert seen["TPOT"] == pytest.approx([0.026, np.nan], nan_ok=True)
    assert seen["E2E"] == pytest.approx([0.083, 0.043])


def test_inside_the_engine_a_token_is_there_when_its_step_ends() -> None:
    run = parse_run(answer())
    inside = run.seen_by_engine()
    assert inside["TTFT"] == pytest.approx([10.03 - 10.002, 10.08 - 10.042])
    assert inside["E2E"] == pytest.approx([10.08 - 10.002, 10.08 - 10.042])
    delays = run.delays()
    assert delays["client late"] == pytest.approx([0.001, 0.001])
    assert delays["way to the engine"] == pytest.approx([0.001, 0.001])
    assert delays["way back of the first token"] == pytest.approx([0.001, 0.003])
    for metric in ("TTFT", "E2E"):
        way = sum(delays[name] for name in ("client late", "way to the engine"))
        last = delays["way back of the first token"] if metric == "TTFT" else np.array([0.003] * 2)
        assert run.seen_by_client()[metric] == pytest.approx(inside[metric] + way + last)


def test_shapes_are_those_of_the_simulator() -> None:
    assert shape_of([(20, 0, 1)]) == StepShape(20, 1, 0, 0, ((20, 0),))
    pieces = [(1, 20, 1), (7, 16, 0), (1, 99, 1)]
    assert shape_of(pieces) == StepShape(9, 2, 2, 121, ((7, 16),), 100)


def test_host_time_is_what_passes_between_two_steps_on_the_device() -> None:
    assert host_times([parse_run(answer())]) == [
        (1, pytest.approx(0.004)),
        (2, pytest.approx(0.010)),
    ]


def test_host_time_after_idling_is_the_wait_for_a_request_and_does_not_count() -> None:
    log = answer()
    log["steps"][1]["unfinished"] = 0  # type: ignore[index]
    assert [size for size, _ in host_times([parse_run(log)])] == [1]


def test_host_time_is_a_line_over_the_requests_of_a_step() -> None:
    """2 ms a step and 0.5 ms a request, six steps of each size."""
    steps = []
    now_s = 0.0
    for size in [n for n in (1, 2, 4, 8) for _ in range(6)]:
        now_s += 2e-3 + 5e-4 * size
        steps.append(step(now_s, now_s + 0.01, [(1, 30, 1)] * size))
        now_s += 0.01
    host = host_overhead([parse_run({"requests": [], "steps": steps})])
    assert host.per_step_s == pytest.approx(2e-3)
    assert host.per_request_s == pytest.approx(5e-4)


def test_another_form_of_the_log_is_an_error_that_names_the_entry() -> None:
    log = answer()
    del log["steps"][0]["device_end_s"]  # type: ignore[attr-defined]
    with pytest.raises(StudyError, match="log can't be read: KeyError: 'device_end_s'"):
        parse_run(log)


def machine() -> Machine:
    """5 ms and 20 us a token and more: the straight lines of the contract tests."""
    profile = parse_profile(profile_document(), "p.json")
    return Machine(REFERENCE_MODEL, profile, HostOverhead(1e-3, 1e-4))


def load(trace: Trace) -> Load:
    scheduler = SchedulerConfig(max_num_seqs=8, max_num_batched_tokens=64, max_model_len=256)
    return Load("by hand", trace, scheduler, CacheConfig(65, 32))


def test_interruptions_lengthen_all_steps_by_their_share() -> None:
    """Steps of the profile's own times, but one in twenty takes nine times as long: 1.4 times."""
    own, rng = machine(), Streams(6).rng("bursts")
    cost = ProfileCost(own.profile)
    bursts = []
    for number in range(100):
        steps, now_s = [], 0.0
        for i in range(20):
            pieces = [(1, int(rng.integers(1, 200)), 1) for _ in range(int(rng.integers(1, 8)))]
            if i % 4 == 0:
                pieces.append((int(rng.integers(2, 60)), 0, 1))
            times = 9.0 if i == number % 20 else 1.0
            end_s = now_s + times * cost.step_time_s(shape_of(pieces))
            steps.append(step(now_s, end_s, pieces))
            now_s = end_s + 1e-3
        bursts.append(parse_run({"requests": [], "steps": steps}))
    server = cast(VllmServer, SimpleNamespace(torch="2.13", version="0.29.0"))
    measured = machine_of(server, REFERENCE_MODEL, bursts, "2026-01-01").profile
    assert measured.fit["lost_share"] == pytest.approx(0.4, abs=0.05)
    pieces = [(1, 99, 1)] * 4
    time_s = ProfileCost(measured).step_time_s(shape_of(pieces))
    assert time_s == pytest.approx(1.4 * cost.step_time_s(shape_of(pieces)), rel=0.1)


def executed_as_predicted(trace: Trace, *, slower: float, way_s: float) -> EngineRun:
    """One request alone, whose every instant is the simulation's, but for a slower device.

    `way_s` passes on the way to the engine, and again on the way back.
    """
    own = machine()
    cost = ProfileCost(own.profile)
    prompt, outputs = int(trace.num_prompt_tokens[0]), int(trace.num_output_tokens[0])
    now_s = way_s
    steps = []
    for number in range(outputs):
        piece = (1, prompt + number - 1, 1) if number else (prompt, 0, 1)
        now_s += own.host.step_s(1)
        end_s = now_s + slower * cost.step_time_s(shape_of([piece]))
        steps.append(step(now_s, end_s, [piece], received={} if number else {"1": way_s}))
        now_s = end_s
    seen = request(
        "1",
        0.0,
        first=steps[0]["device_end_s"] + way_s,  # type: ignore[index]
        last=now_s + way_s,
        outputs=outputs,
    )
    return parse_run({"requests": [{**seen, "sent_s": 0.0}], "steps": steps})  # type: ignore[dict-item]


def test_an_engine_like_the_simulation_differs_by_nothing_but_the_ways() -> None:
    trace = Trace.from_columns([0.0], [20], [5])
    run = executed_as_predicted(trace, slower=1.0, way_s=0.002)
    comparison = compare_runs(machine(), load(trace), [run])
    assert all(item.error == pytest.approx(0.0, abs=1e-9) for item in comparison.engine)
    seen = {(item.metric, item.statistic): item for item in comparison.client}
    ttft = seen["TTFT", "mean"]
    assert ttft.predicted_s - ttft.measured_s == pytest.approx(-0.004)
    assert comparison.steps.total_error == pytest.approx(0.0, abs=1e-9)
    assert comparison.host_s[0] == pytest.approx(comparison.host_s[1])


def test_slow_steps_are_found_and_made_up_for() -> None:
    """A device that takes 1.25 times as long: the whole difference is in the step times."""
    trace = Trace.from_columns([0.0], [20], [5])
    run = executed_as_predicted(trace, slower=1.25, way_s=0.0)
    comparison = compare_runs(machine(), load(trace), [run])
    assert comparison.steps.total_error == pytest.approx(1 / 1.25 - 1)
    assert comparison.engine[0].error < -0.1
    assert all(item.error == pytest.approx(0.0, abs=1e-9) for item in comparison.at_pace)


def test_bursts_fit_the_engine() -> None:
    rng = Streams(1).rng("bursts")
    bursts = [random_burst(rng, SETTINGS) for _ in range(200)]
    requests = [one for burst in bursts for one in burst]
    assert all(1 <= len(burst) <= SETTINGS.max_num_seqs for burst in bursts)
    assert all(prompt + outputs <= SETTINGS.max_model_len for _, prompt, outputs in requests)
    assert all(list(burst) == sorted(burst) for burst in bursts)
    assert any(arrival_s > 0 for arrival_s, _, _ in requests)


def test_lengths_are_divided_rounded_up_and_cut_to_the_model() -> None:
    trace = Trace.from_columns([5.0, 6.0, 7.0], [17, 8, 8000], [3, 1, 8000])
    short = shortened(trace, 8.0, SETTINGS)
    assert workload_of(short) == [(0.0, 3, 1), (1.0, 1, 1), (2.0, 192, 64)]


def test_a_load_is_a_share_of_what_gets_through() -> None:
    """At half the rate of all at once the last request comes when twice that time has passed."""
    trace = Trace.from_columns([0.0, 1.0, 9.0], [20, 30, 40], [5, 5, 5])
    whole = load(trace)
    at_once = load(trace.with_arrivals([0.0] * 3, "at once"))
    span_s = float(max(predict(machine(), at_once)["E2E"]))
    half = at_load(machine(), whole, 0.5)
    assert half.trace.arrival_s.tolist() == pytest.approx([0, 2 * span_s / 9, 2 * span_s])
