"""Speculative decoding and LoRA caps in the clock."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from calibration import ConstantCost
from sim.checks import check_run
from sim.config import resolve_study
from sim.drafts import Drafting
from sim.errors import StudyError
from sim.metrics import summarise
from sim.run_result import RunResult
from sim.scheduler.config import CacheConfig, SchedulerConfig
from sim.scheduler.drafting import drafting_options
from sim.simulation import simulate
from sim.summary_table import latency_labels
from tests.sim.small_study import make_study
from traces import RequestSpec


def run(
    requests: list[RequestSpec],
    drafting: Drafting | None,
    method: str = "ngram",
    **options: Any,
) -> RunResult:
    num_drafts = drafting.num_speculative_tokens if drafting else 0
    known = {"max_num_seqs": 64, **(drafting_options(method, num_drafts) if drafting else {})}
    scheduler = SchedulerConfig(num_speculative_tokens=num_drafts, **known, **options)
    engine: dict[str, Any] = {"drafting": drafting}
    return simulate(
        make_study(requests, scheduler, CacheConfig(2000), ConstantCost(0.01), engine=engine)
    )


def decode_steps(result: RunResult) -> int:
    return len(result.steps["step"]) - 1  # the first computes the prompt


@pytest.mark.parametrize(
    ("rate", "steps"),
    [
        (0.0, 40),  # one token a step
        (1.0, 10),  # four tokens a step: 40 tokens after the first
    ],
)
def test_steps_by_hand(rate: float, steps: int) -> None:
    drafting = Drafting(3, acceptance_rates=(rate,) * 3)
    result = run([RequestSpec(0, 0.0, 20, 41)], drafting)
    assert decode_steps(result) == steps
    assert result.requests["num_output_tokens"].tolist() == [41]


def test_itl_is_of_steps_and_tpot_of_tokens() -> None:
    """Ten steps of 10 ms after the first, four tokens each: a gap a step, a quarter a token."""
    result = run([RequestSpec(0, 0.0, 20, 41)], Drafting(3, acceptance_rates=(1.0,) * 3))
    summary = summarise(result)
    itl, tpot = summary["latency"]["itl_s"], summary["latency"]["tpot_s"]
    assert (itl["count"], itl["mean"]) == (10, pytest.approx(0.01))
    assert tpot["mean"] == pytest.approx(0.0025)
    assert dict(latency_labels(summary))["itl_s"] == "ITL, of steps"
    plain = summarise(run([RequestSpec(0, 0.0, 20, 41)], None))
    assert dict(latency_labels(plain))["itl_s"] == "ITL, pooled"


def test_recorded_lengths_are_taken_in_turn() -> None:
    """Recorded 0, 1 and 2 in turn: three steps give 1 + 2 + 3 tokens, wherever they begin."""
    drafting = Drafting(3, accepted_lengths=(0, 1, 2))
    result = run([RequestSpec(0, 0.0, 20, 61)], drafting)
    assert decode_steps(result) == 30
    assert summarise(result)["speculative"]["mean_accepted_length"] == pytest.approx(2.0)


def test_mean_accepted_length_is_that_of_the_rates() -> None:
    """With rates a, b, c the mean number accepted is a + a b + a b c."""
    rates = (0.8, 0.6, 0.5)
    expected = 1 + 0.8 + 0.8 * 0.6 + 0.8 * 0.6 * 0.5
    requests = [RequestSpec(i, 0.0, 20, 400) for i in range(60)]
    speculative = summarise(run(requests, Drafting(3, acceptance_rates=rates)))["speculative"]
    # 4 standard errors; the variance of a number between 0 and 3 is at most 9 / 4.
    error = 4 * 1.5 / np.sqrt(speculative["verifications"])
    assert abs(speculative["mean_accepted_length"] - expected) < error


def test_a_request_accepts_the_same_whatever_runs_beside_it() -> None:
    drafting = Drafting(4, acceptance_rates=(0.6,) * 4)
    alone = run([RequestSpec(7, 0.0, 20, 200)], drafting)
    crowd = run([RequestSpec(i, 0.1 * i, 20 + i, 200) for i in range(20)], drafting)
    in_crowd = crowd.requests["request_id"] == 7
    for column in ("num_draft_tokens", "num_accepted_tokens", "num_verifications"):
        assert alone.requests[column][0] == crowd.requests[column][in_crowd][0]


def test_drafting_takes_its_time_in_steps_that_sample() -> None:
    drafting = Drafting(3, acceptance_rates=(1.0,) * 3, draft_step_s=0.005)
    result = run([RequestSpec(0, 0.0, 20, 41)], drafting)
    assert result.requests["last_token_s"][0] == pytest.approx(11 * 0.015)


def test_lookups_that_find_nothing_give_no_drafts() -> None:
    drafting = Drafting(3, acceptance_rates=(1.0,) * 3, proposal_rate=0.0)
    assert decode_steps(run([RequestSpec(0, 0.0, 20, 41)], drafting)) == 40


@pytest.mark.parametrize("method", ["eagle", "draft_model", "ngram_gpu"])
@pytest.mark.parametrize("async_scheduling", [False, True])
def test_every_kind_of_drafter_keeps_the_books(method: str, async_scheduling: bool) -> None:
    requests = [
        RequestSpec(i, 0.05 * i, 40 + 9 * i % 50, 5 + 7 * i % 60, (("s", 16), (i, 24 + 9 * i % 50)))
        for i in range(50)
    ]
    drafting = Drafting(3, acceptance_rates=(0.7, 0.5, 0.3))
    result = run(requests, drafting, method, async_scheduling=async_scheduling)
    assert (result.requests["state"] == "finished").all()
    assert [outcome for outcome in check_run(result) if not outcome.ok] == []


def test_more_adapters_than_the_cap_wait_their_turn() -> None:
    """Three adapters, two at a time: the third is passed over, later ones of the first two not."""
    requests = [RequestSpec(i, 0.0, 16, 10, lora_id=lora) for i, lora in enumerate((1, 2, 3, 1, 0))]
    result = run(requests, None, max_loras=2)
    expected = [0.0, 0.0, 10 * 0.01, 0.0, 0.0]
    assert result.requests["first_scheduled_s"] == pytest.approx(expected)


def study(**engine: Any) -> dict[str, Any]:
    return {
        "trace": {"sample": True, "limit": 5},
        "model": "llama-3.1-8b",
        "hardware": "h100",
        "engine": {"max_model_len": 16384, **engine},
    }


@pytest.mark.parametrize(
    ("speculative", "words"),
    [
        ({}, ["exactly one of", "none"]),
        (
            {"acceptance_rate": 0.5, "accepted_lengths": [1]},
            ["exactly one of", "acceptance_rate, accepted_lengths"],
        ),
        ({"acceptance_rates": [0.5]}, ["1 rates for 3 num_speculative_tokens"]),
        ({"acceptance_rate": 1.5}, ["engine.speculative_config.acceptance_rate", "1.5"]),
        ({"acceptance_rate": 0.5, "method": "oracle"}, ["'oracle' is not modelled", "ngram"]),
        ({"acceptance_rate": 0.5, "method": "medusa"}, ["'medusa' does not go with async"]),
    ],
)
def test_bad_speculative_configs(speculative: dict[str, Any], words: list[str]) -> None:
    known = {"method": "eagle", "num_speculative_tokens": 3}
    with pytest.raises(StudyError) as error:
        resolve_study(
            study(async_scheduling=True, speculative_config={**known, **speculative}), "study.yaml"
        )
    for word in words:
        assert word in str(error.value)
