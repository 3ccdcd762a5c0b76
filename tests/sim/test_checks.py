"""Every check passes on sound runs, and each one catches the fault that it is there for."""

import dataclasses
import json
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.checks import CheckOutcome, check_dir, check_run
from sim.checks.run_checks import EVERY_RUN, EXACT_ENDS, ONE_TOKEN_PER_EMISSION
from sim.errors import ResultError
from sim.metrics import latency_columns
from sim.parquet import write_rows
from sim.result import save
from sim.run_result import RunResult
from tests.sim.hand_run import hand_run
from tests.sim.toy_run import toy_requests, toy_run


def preempting_run() -> RunResult:
    """Two replicas with preemption, prefix hits and stalls."""
    options = {"num_gpu_blocks": 40, "num_replicas": 2, "max_num_batched_tokens": 64}
    run = toy_run(toy_requests(60, 20.0, seed=3, mean_prompt=80), **options)
    assert run.requests["num_preemptions"].sum() > 0
    assert len(run.gaps["gap_s"]) > 0
    return run


def failed(run: RunResult) -> set[str]:
    return {outcome.name for outcome in check_run(run) if not outcome.ok}


def test_the_hand_made_run_passes_every_check():
    assert failed(hand_run()) == set()


@settings(deadline=None, max_examples=30)
@given(
    seed=st.integers(0, 10_000),
    blocks=st.sampled_from([30, 60, 1000]),
    budget=st.sampled_from([8, 64, 512]),
    until_s=st.sampled_from([0.5, 2.0, float("inf")]),
    replicas=st.integers(1, 3),
)
def test_sound_runs_pass_every_check(seed, blocks, budget, until_s, replicas):
    requests = toy_requests(40, 20.0, seed, mean_prompt=60, mean_output=15)
    run = toy_run(
        requests,
        num_gpu_blocks=blocks,
        max_num_batched_tokens=budget,
        until_s=until_s,
        num_replicas=replicas,
        aborts={3: 0.3, 11: 0.9},
    )
    assert failed(run) == set()


def add(table: str, column: str, amount: float, row: int = 0):
    def corrupt(run: RunResult) -> None:
        getattr(run, table)[column][row] += amount

    return corrupt


def put(table: str, column: str, value: object, row: int = 0):
    def corrupt(run: RunResult) -> None:
        getattr(run, table)[column][row] = value

    return corrupt


def later_by(seconds: float):
    """A completion that no step has: what an engine gets that stamps it at another time."""

    def corrupt(run: RunResult) -> None:
        row = int(np.flatnonzero(run.requests["state"] == "finished")[-1])
        run.requests["last_token_s"][row] += seconds

    return corrupt


def step_begins_early(run: RunResult) -> None:
    rows = np.flatnonzero(run.steps["replica"] == 0)
    run.steps["start_s"][rows[3]] = run.steps["end_s"][rows[2]] - 1e-3


def first_token_stamped_again(run: RunResult) -> None:
    """A preempted request's first token is taken to be the one after its readmission."""
    gap = int(np.flatnonzero(run.gaps["gap_s"] > 0)[0])
    row = int(run.gaps["request_id"][gap])
    run.requests["first_token_s"][row] += run.gaps["gap_s"][gap]


def emission_of_another_step(run: RunResult) -> None:
    """One token booked a step too early: all the totals stay right."""
    busy = np.flatnonzero(run.steps["num_emitted"] > 1)
    run.steps["num_emitted"][busy[0]] -= 1
    run.steps["num_emitted"][busy[1]] += 1


# fmt: off
FAULTS = {
    "requests by state add up": put("requests", "request_id", 1),
    "scheduled + cached - lost = progress": add("requests", "num_preempted_tokens", 1),
    "outputs within their length": add("requests", "target_output_tokens", -1000),
    "work done": add("steps", "num_tokens", -1),
    "prefix hits": add("steps", "num_cached_tokens", 16),
    "preemptions": add("requests", "num_preemptions", 1),
    "output tokens": add("requests", "num_output_tokens", -1),
    "completions": add("steps", "num_finished", 1),
    "first tokens": add("steps", "num_first_tokens", 1),
    "sum of ITL, all requests": add("gaps", "gap_s", 1e-4),
    "TTFT + sum of ITL = E2E, finished": first_token_stamped_again,
    "request times in order": put("requests", "first_scheduled_s", 1e9),
    "request times fit their state": put("requests", "last_token_s", np.nan),
    "steps in order, none over another": step_begins_early,
    "KV blocks within capacity": put("steps", "kv_blocks_used", 40),
    "running within max_num_seqs": put("steps", "num_running", 17),
    "tokens within max_num_batched_tokens": put("steps", "num_tokens", 65),
    "Little's law": later_by(1e-3),
    "number in the system, by steps": add("steps", "num_waiting", 1, row=5),
    "number of gaps": add("steps", "num_gaps", 1),
    "tokens of each step have a gap or are first": emission_of_another_step,
    "finished: progress = prompt + outputs - 1": add("requests", "num_computed_tokens", 1),
}
# fmt: on


@pytest.mark.parametrize("name", FAULTS)
def test_each_check_catches_its_fault(name):
    run = preempting_run()
    assert failed(run) == set()
    FAULTS[name](run)
    assert name in failed(run)


def test_every_check_has_a_fault_that_it_catches():
    run = hand_run()
    checks = (*EVERY_RUN, *ONE_TOKEN_PER_EMISSION, *EXACT_ENDS)
    assert {check(run).name for check in checks} == set(FAULTS)


def test_a_failing_check_shows_both_figures():
    run = hand_run()
    run.steps["num_emitted"][0] = 7
    detail = next(o.detail for o in check_run(run) if o.name == "output tokens")
    assert detail == "by requests 6, by steps 12"


def sampled(run: RunResult) -> CheckOutcome:
    return next(o for o in check_run(run) if o.name == "number in the system, by steps")


def test_the_number_by_steps_shows_both_sides_and_their_difference():
    """One more waiting in a step is a request for the length of that step."""
    run = preempting_run()
    figures = r"sums to (\S+) request-seconds; .* (\S+) to (\S+); off by (\S+)$"
    seen, low, high, off = map(float, re.search(figures, sampled(run).detail).groups())
    assert low <= seen <= high and off == 0
    run.steps["num_waiting"][5] += 1_000
    more_s = 1_000 * float(run.steps["end_s"][5] - run.steps["start_s"][5])
    later, low, high, off = map(float, re.search(figures, sampled(run).detail).groups())
    assert later == pytest.approx(seen + more_s, rel=1e-6)
    assert off == pytest.approx(later - high, rel=1e-2)


def test_the_number_by_steps_says_why_it_is_left_out():
    run = preempting_run()
    later = tuple(dataclasses.replace(r, synchronous=False) for r in run.info.replicas)
    run = dataclasses.replace(run, info=dataclasses.replace(run.info, replicas=later))
    assert sampled(run).ok
    assert "left out" in sampled(run).detail and "asynchronous scheduling" in sampled(run).detail


def test_a_failing_row_check_shows_the_first_bad_row():
    run = hand_run()
    run.requests["num_computed_tokens"][1] = 5
    detail = next(
        o.detail for o in check_run(run) if o.name == "scheduled + cached - lost = progress"
    )
    assert detail.startswith("1 of 4 requests off; first: request_id=1, num_scheduled_tokens=6")


def test_a_check_that_can_not_apply_is_left_out():
    run = hand_run()
    several = dataclasses.replace(run.info, one_token_per_emission=False)
    names = {o.name for o in check_run(dataclasses.replace(run, info=several))}
    assert "number of gaps" not in names


@pytest.mark.parametrize(
    ("partial", "ahead", "ok"),
    [(True, 10, True), (True, 17, False), (True, -1, False), (False, 1, False)],
)
def test_only_a_stopped_run_may_have_a_step_under_way(partial, ahead, ok):
    run = hand_run()  # 2 replicas of max_num_batched_tokens 8
    run.requests["num_scheduled_tokens"][2] += ahead
    run = dataclasses.replace(run, info=dataclasses.replace(run.info, partial=partial))
    outcome = next(o for o in check_run(run) if o.name == "work done")
    assert outcome.ok is ok


def test_a_saved_folder_passes(tmp_path):
    outcomes = check_dir(save(preempting_run(), tmp_path / "run", plots=False))
    assert all(outcome.ok for outcome in outcomes)


def test_a_summary_that_does_not_follow_from_the_rows_is_caught(tmp_path):
    folder = save(hand_run(), tmp_path / "run", plots=False)
    path = folder / "summary.json"
    summary = json.loads(path.read_text())
    summary["latency"]["ttft_s"]["p99"] = 0.001
    path.write_text(json.dumps(summary))
    bad = [outcome for outcome in check_dir(folder) if not outcome.ok]
    assert [outcome.name for outcome in bad] == ["summary follows from the rows"]
    assert "latency.ttft_s.p99, saved 0.001, from the rows 1.99" in bad[0].detail


def test_latencies_that_do_not_follow_from_their_times_are_caught(tmp_path):
    run = hand_run()
    folder = save(run, tmp_path / "run", plots=False)
    latencies = latency_columns(run.requests)
    latencies["e2e_s"][0] += 1.0
    write_rows(folder / "requests.parquet", run.requests | latencies)
    bad = [outcome for outcome in check_dir(folder) if not outcome.ok]
    assert [outcome.detail for outcome in bad] == ["off: e2e_s"]


def test_a_folder_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(ResultError, match="no such folder"):
        check_dir(tmp_path / "nowhere")


def test_the_rounding_of_sums_is_no_difference(tmp_path):
    folder = save(hand_run(), tmp_path / "run", plots=False)
    path = folder / "summary.json"
    summary = json.loads(path.read_text())
    for factor, is_sound in ((1 + 1e-14, True), (1 + 1e-9, False)):
        changed = json.loads(json.dumps(summary))
        changed["replicas"][0]["busy_s"] *= factor
        path.write_text(json.dumps(changed))
        assert all(outcome.ok for outcome in check_dir(folder)) == is_sound
