"""Why did it wait: the parts are of the right causes, and sum to the whole."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import policies
from calibration import ConstantCost, CostModel, LinearCost
from sim.checks import check_dir, check_run
from sim.cli.app import run_app
from sim.config import ResolvedStudy, resolve_study
from sim.errors import StudyError
from sim.metrics import time_split
from sim.result import save
from sim.run_result import RunResult
from sim.scheduler.config import CacheConfig, SchedulerConfig
from sim.simulation import simulate
from sim.time_split import Cause
from tests.sim.small_study import make_study, run_unless_endless
from tests.sim.test_leap_equals_stepping import differences, loads, options, workloads
from traces import RequestSpec

STEP_S = 1.0


def explained(study: ResolvedStudy, **engine: Any) -> RunResult:
    return simulate(replace(study, engine=replace(study.engine, explain=True, **engine)))


def whole_s(run: RunResult, until_s: float | None = None) -> np.ndarray:
    """Arrival to last token; of unfinished requests, to where the run was stopped."""
    r = run.requests
    end_s = np.where(r["state"] == "unfinished", until_s or 0.0, r["last_token_s"])
    return np.where(r["state"] == "rejected", 0.0, end_s - r["arrival_s"])


def parts_s(run: RunResult) -> np.ndarray:
    return np.array([run.requests[cause.column] for cause in Cause])


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(workloads(), options(), st.data())
def test_parts_sum_to_the_whole_and_leaps_give_the_parts_of_stepping(
    requests: list[RequestSpec], chosen: dict[str, Any], data: st.DataObject
) -> None:
    study = make_study(requests, **chosen, load=data.draw(loads(len(requests))))
    name = data.draw(st.sampled_from(["fcfs", "fcfs", *policies.builtin_queue_policies()]))
    engine = {} if name == "fcfs" else {"queue_policy": name}
    plain = run_unless_endless(replace(study, engine=replace(study.engine, **engine)))
    assume(plain is not None)
    leaping = explained(study, leap=True, **engine)
    stepping = explained(study, leap=False, **engine)
    for run in (leaping, stepping):
        whole = whole_s(run, chosen["until_s"])
        np.testing.assert_allclose(parts_s(run).sum(axis=0), whole, rtol=1e-9, atol=1e-9)
        assert (parts_s(run) >= -1e-9).all()
    np.testing.assert_allclose(parts_s(leaping), parts_s(stepping), rtol=1e-9, atol=1e-9)
    assert differences(plain, leaping) == []


def split(
    requests: list[RequestSpec], row: int, cost: CostModel | None = None, **changes: Any
) -> dict[str, float]:
    """The parts of one request that are not zero, in steps of one second, by stepping and leaping.

    Blocks of 4 tokens, 100 of them, no prefix cache.
    """
    base = {"max_num_seqs": 8, "max_num_batched_tokens": 100, "max_model_len": 400}
    blocks = changes.pop("num_blocks", 100)
    policy = changes.pop("policy_name", None)
    scheduler = SchedulerConfig(**{**base, **changes})
    cache = CacheConfig(1 + blocks, 4, enable_prefix_caching=False)
    study = make_study(requests, scheduler, cache, cost or ConstantCost(STEP_S))
    found = []
    for leap in (True, False):
        run = explained(study, leap=leap, queue_policy=policy)
        column = parts_s(run)[:, row]
        found.append({c.name.lower(): round(float(column[c]), 9) for c in Cause if column[c]})
        assert sum(column) == pytest.approx(whole_s(run)[row])
    assert found[0] == found[1]
    return found[0]


def test_alone_it_prefills_and_decodes() -> None:
    assert split([RequestSpec(0, 0.0, 10, 5)], 0) == {"prefilling": 1, "decoding": 4}


def test_chunks_are_all_prefill() -> None:
    assert split([RequestSpec(0, 0.0, 250, 2)], 0) == {"prefilling": 3, "decoding": 1}


def test_an_arrival_waits_for_the_step_under_way() -> None:
    requests = [RequestSpec(0, 0.0, 10, 5), RequestSpec(1, 1.25, 10, 1)]
    assert split(requests, 1) == {"next_step": 0.75, "prefilling": 1}


def test_waiting_for_a_seat() -> None:
    """The only seat is free after 4 steps; both behind it lack a seat, not the head."""
    requests = [RequestSpec(i, 0.0, 10, n) for i, n in enumerate((4, 3, 1))]
    assert split(requests, 1, max_num_seqs=1) == {
        "max_num_seqs": 4,
        "prefilling": 1,
        "decoding": 2,
    }
    assert split(requests, 2, max_num_seqs=1) == {"max_num_seqs": 7, "prefilling": 1}


def test_waiting_for_the_token_budget() -> None:
    """A prompt of 250 takes the budget of 100 for two steps and half of the third."""
    requests = [RequestSpec(0, 0.0, 250, 1), RequestSpec(1, 0.0, 50, 1)]
    assert split(requests, 1) == {"token_budget": 2, "prefilling": 1}


def test_without_chunks_the_head_waits_for_the_budget_and_others_behind_it() -> None:
    """80 of 100 tokens are gone: 40 do not fit and are not cut; 10 would, but stand behind."""
    requests = [RequestSpec(i, 0.0, n, 1) for i, n in enumerate((80, 40, 10))]
    changes = {"enable_chunked_prefill": False, "max_model_len": 100}
    assert split(requests, 1, **changes) == {"token_budget": 1, "prefilling": 1}
    assert split(requests, 2, **changes) == {"head_of_line": 1, "prefilling": 1}


def test_waiting_for_blocks_and_behind_who_does() -> None:
    """19 blocks; request 0 holds 10 and soon 11, the head needs 10, the one behind it 1.

    Request 0 takes 4 steps. It ends, both get in at once.
    """
    requests = [RequestSpec(i, 0.0, n, m) for i, (n, m) in enumerate(((40, 4), (38, 1), (3, 1)))]
    assert split(requests, 1, num_blocks=19) == {"kv_blocks": 4, "prefilling": 1}
    assert split(requests, 2, num_blocks=19) == {"head_of_line": 4, "prefilling": 1}


def test_waiting_for_the_lora_cap() -> None:
    """One adapter a step: that of request 0, for 3 steps. The base model is not kept out."""
    requests = [RequestSpec(i, 0.0, 10, 3, lora_id=lora) for i, lora in enumerate((1, 2, 0))]
    assert split(requests, 1, max_loras=1) == {"lora_cap": 3, "prefilling": 1, "decoding": 2}
    assert split(requests, 2, max_loras=1) == {"prefilling": 1, "decoding": 2}


def test_preempted_and_computed_again() -> None:
    """6 blocks of 4; two prompts of 11 take 3 each, and both want a fourth in the third step.

    Step 1 computes 11 tokens, step 2 the 12th, step 3 needs block 4: request 1 gives way, having
    3 steps of request 0 to wait (outputs 3, 4 and 5). Then it computes 12 + 1 known tokens again
    in one step, which gives output 3, and decodes two more.
    """
    requests = [RequestSpec(i, 0.0, 11, 5) for i in range(2)]
    assert split(requests, 0, num_blocks=6) == {"prefilling": 1, "decoding": 4}
    assert split(requests, 1, num_blocks=6) == {
        "prefilling": 1,
        "decoding": 3,
        "preempted": 3,
        "recomputing": 1,
    }


def test_a_decode_step_is_stalled_by_what_the_cost_model_takes_for_others_prefill() -> None:
    """1 s a step and 0.01 s a token: request 1's prompt of 50 adds 0.5 s to one step."""
    requests = [RequestSpec(0, 0.0, 10, 4), RequestSpec(1, 1.1, 50, 1)]
    cost = LinearCost(base_s=1.0, per_token_s=0.01)
    assert split(requests, 0, cost) == {
        "prefilling": 1.1,
        "decoding": pytest.approx(3 * 1.01),
        "others_prefill": pytest.approx(0.5),
    }
    assert split(requests, 1, cost) == {"prefilling": pytest.approx(1.51)}


def test_a_step_in_flight_at_admission_is_not_lost() -> None:
    """Asynchronous: admitted while a step is on the device, whose time is part of its prefill."""
    requests = [RequestSpec(0, 0.0, 10, 6), RequestSpec(1, 1.5, 10, 2)]
    assert split(requests, 1, async_scheduling=True) == {
        "next_step": 0.5,
        "prefilling": 2,
        "decoding": 1,
    }


def test_a_policy_that_preempts_is_split_too() -> None:
    """Request 0 falls to the second level after 256 tokens; request 1 takes its seat for 2 steps.

    Its 280 known tokens are then computed again in 3 steps of 100, the last of which gives a token.
    """
    requests = [RequestSpec(0, 0.0, 10, 300), RequestSpec(1, 270.5, 10, 2)]
    parts = split(requests, 0, max_num_seqs=1, policy_name="multi-level-feedback")
    assert parts == {"prefilling": 1, "decoding": 298, "preempted": 2, "recomputing": 3}


def test_columns_are_there_only_when_asked_for() -> None:
    scheduler = SchedulerConfig(max_model_len=64)
    study = make_study([RequestSpec(0, 0.0, 8, 2)], scheduler, CacheConfig(20), ConstantCost(1.0))
    assert not [name for name in simulate(study).requests if name.startswith("spent_")]
    assert len([n for n in explained(study).requests if n.startswith("spent_")]) == len(Cause)


def shared_run() -> RunResult:
    """One seat; priority 1 waits 4 steps, then priority 0 (which came later) 3 more."""
    scheduler = SchedulerConfig(1, 100, max_model_len=400)
    requests = [
        RequestSpec(0, 0.0, 10, 4, priority=1),
        RequestSpec(1, 0.0, 10, 3, priority=1),
        RequestSpec(2, 0.0, 10, 3, priority=0),
    ]
    return explained(make_study(requests, scheduler, CacheConfig(100), ConstantCost(STEP_S)))


def test_the_summary_has_the_shares_and_the_waits_by_priority() -> None:
    """E2E 4 + 7 + 10 s, of which 0 + 4 + 7 s in wait for the seat, 3 s prefill, 7 s decoding."""
    found = time_split(shared_run().requests)
    assert found is not None
    shares = {name: value for name, value in found["shares"].items() if value}
    assert shares == pytest.approx(
        {"max_num_seqs": 11 / 21, "prefilling": 3 / 21, "decoding": 7 / 21}
    )
    urgent, other = found["waits"]
    assert (urgent["priority"], urgent["wait_max_s"], urgent["requests"]) == (0, 7.0, 1)
    assert (other["priority"], other["wait_mean_s"], other["requests"]) == (1, 2.0, 2)
    assert other["longest_wait_request_id"] == 1
    assert other["wait_share"] == pytest.approx(4 / 11)


def test_who_was_never_let_in_is_counted() -> None:
    scheduler = SchedulerConfig(1, 100, max_model_len=400)
    requests = [RequestSpec(0, 0.0, 10, 90), RequestSpec(1, 0.5, 10, 3)]
    study = make_study(requests, scheduler, CacheConfig(100), ConstantCost(STEP_S), until_s=20.25)
    found = time_split(explained(study).requests)
    assert found is not None
    (waits,) = found["waits"]
    assert waits["never_scheduled_requests"] == 1
    assert waits["wait_max_s"] == pytest.approx(19.75)


def test_a_run_folder_keeps_the_split_and_explain_prints_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = shared_run()
    folder = save(run, tmp_path / "run", plots=False)
    assert all(outcome.ok for outcome in check_dir(folder))
    assert "time by cause sums to E2E" in {outcome.name for outcome in check_dir(folder)}
    assert run_app(["explain", str(folder), "2"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("request 2, priority 0, 10 prompt and 3 output tokens: finished 10.0")
    assert [line.split()[0] for line in said[1:]] == ["7.000000", "1.000000", "2.000000"]
    assert "70.0 %  waiting for a seat (max_num_seqs)" in said[1]
    assert run_app(["explain", str(folder), "9"]) == 2
    assert "there is no request 9; its requests: 0 to 2" in capsys.readouterr().err


def test_a_split_that_does_not_sum_is_caught() -> None:
    run = shared_run()
    run.requests["spent_decoding_s"][1] += 0.01
    (outcome,) = [o for o in check_run(run) if o.name == "time by cause sums to E2E"]
    assert not outcome.ok


def test_explain_says_what_to_do_about_a_run_without_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scheduler = SchedulerConfig(max_model_len=64)
    study = make_study([RequestSpec(0, 0.0, 8, 2)], scheduler, CacheConfig(20), ConstantCost(1.0))
    folder = save(simulate(study), tmp_path / "run", plots=False)
    assert run_app(["explain", str(folder), "0"]) == 2
    assert "run it again with --set engine.explain=true" in capsys.readouterr().err


def test_only_our_own_scheduler_says_why() -> None:
    study = {"trace": {"sample": True}, "model": "llama-3.1-8b", "hardware": "h100"}
    engine = {"explain": True, "scheduler": "vllm"}
    with pytest.raises(StudyError, match=r"engine.explain: the scheduler 'vllm' does not say"):
        resolve_study({**study, "engine": engine}, "s.yaml")
