"""Runs small enough to be worked out by hand."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from calibration import ConstantCost, LinearCost
from sim.config import ClosedLoad
from sim.config.drafting_options import resolve_drafting, scheduler_drafting_options
from sim.config.schema import EngineSection, SpeculativeSection
from sim.metrics import e2e_s, finished_gaps, summarise, tpot_s, ttft_s
from sim.run_result import RunResult
from sim.scheduler.config import CacheConfig, SchedulerConfig
from sim.simulation import simulate
from tests.sim.small_study import make_study
from traces import RequestSpec

COST = LinearCost(base_s=0.002, per_token_s=1e-5, per_context_token_s=1e-8, per_logit_s=1e-4)
LEAPS = pytest.mark.parametrize("leap", [True, False])


def run(requests: list[RequestSpec], *, leap: bool, **options: object) -> RunResult:
    known = {"max_num_batched_tokens": 2048, "max_model_len": 8192} | {
        key: value for key, value in options.items() if key in SchedulerConfig.__slots__
    }
    others = {key: value for key, value in options.items() if key not in known}
    cost, cache = others.pop("cost", COST), others.pop("cache", CacheConfig(1000))
    return simulate(
        make_study(
            requests,
            SchedulerConfig(**known),  # type: ignore[arg-type]
            cache,  # type: ignore[arg-type]
            cost,  # type: ignore[arg-type]
            leap=leap,
            **others,
        )
    )


@LEAPS
def test_lone_request(leap: bool) -> None:
    """5,000 prompt tokens in chunks of 2,048, 2,048 and 904; then one step a token.

    The context read by a chunk is what was computed before it and the chunk itself.
    """
    result = run([RequestSpec(0, 3.0, 5000, 4)], leap=leap)
    prefill_s = 3 * 0.002 + 5000e-5 + (2048 + 4096 + 5000) * 1e-8 + 1e-4
    decode_s = [0.002 + 1e-5 + context * 1e-8 + 1e-4 for context in (5001, 5002, 5003)]
    assert result.steps["num_tokens"].tolist() == [2048, 2048, 904, 1, 1, 1]
    assert ttft_s(result.requests)[0] == pytest.approx(prefill_s, rel=1e-9)
    assert e2e_s(result.requests)[0] == pytest.approx(prefill_s + sum(decode_s), rel=1e-9)
    assert tpot_s(result.requests)[0] == pytest.approx(sum(decode_s) / 3, rel=1e-9)


@LEAPS
def test_arrival_inside_a_step_waits_for_the_next(leap: bool) -> None:
    """Steps of 1 s: the second request comes at 2.5 and is scheduled at 3; at 3 exactly, at 3."""
    for arrival_s, scheduled_s in ((2.5, 3.0), (3.0, 3.0), (2.0000001, 3.0)):
        requests = [RequestSpec(0, 0.0, 10, 20), RequestSpec(1, arrival_s, 10, 2)]
        result = run(requests, leap=leap, cost=ConstantCost(1.0))
        assert result.requests["first_scheduled_s"].tolist() == [0.0, scheduled_s]
        assert result.requests["first_token_s"].tolist() == [1.0, scheduled_s + 1]
        assert result.requests["last_token_s"].tolist() == [20.0, scheduled_s + 2]


@LEAPS
def test_synchronous_host_time_adds_to_every_step(leap: bool) -> None:
    """Schedule, run, update in turn: a step takes the host's time and the device's."""
    result = run(
        [RequestSpec(0, 0.0, 10, 8)],
        leap=leap,
        cost=ConstantCost(1.0),
        engine={"host_overhead_s": 0.25, "host_overhead_per_request_s": 0.25},
    )
    assert result.requests["last_token_s"][0] == pytest.approx(8 * 1.5)


@LEAPS
def test_asynchronous_host_time_hides_behind_the_device(leap: bool) -> None:
    """Only the first step waits for the host; a host slower than the device sets the pace."""
    for host_s, expected in ((0.5, 0.5 + 8 * 1.0), (2.0, 2.0 + 2.0 * 7 + 1.0)):
        result = run(
            [RequestSpec(0, 0.0, 10, 8)],
            leap=leap,
            cost=ConstantCost(1.0),
            async_scheduling=True,
            engine={"host_overhead_s": host_s},
        )
        assert float(result.steps["start_s"][-1]) + 1.0 == pytest.approx(expected)


@LEAPS
def test_asynchronous_arrival_is_seen_one_step_later(leap: bool) -> None:
    """While step n runs, step n+1 is decided already: an arrival in n is first in n+2."""
    requests = [RequestSpec(0, 0.0, 10, 20), RequestSpec(1, 4.5, 10, 2)]
    for async_scheduling, first_token_s in ((False, 6.0), (True, 7.0)):
        result = run(requests, leap=leap, cost=ConstantCost(1.0), async_scheduling=async_scheduling)
        assert result.requests["first_token_s"][1] == first_token_s


@LEAPS
def test_closed_loop_by_hand(leap: bool) -> None:
    """Two clients, two rounds, one at a time: each waits for the other."""
    requests = [RequestSpec(i, 0.0, 10, 3) for i in range(4)]
    result = run(
        requests,
        leap=leap,
        cost=ConstantCost(1.0),
        max_num_seqs=1,
        load=ClosedLoad(2, 2, client_delay_s=0.5, client_delay_per_prompt_token_s=0.05),
    )
    assert result.requests["arrival_s"].tolist() == [0.0, 0.0, 4.0, 7.0]
    assert result.requests["last_token_s"].tolist() == [3.0, 6.0, 9.0, 12.0]


@LEAPS
def test_a_second_equal_prompt_finds_the_first_in_the_cache(leap: bool) -> None:
    """64 shared tokens are 4 blocks; the last one is computed anew for its last token."""
    prompt = (("system", 64),)
    requests = [RequestSpec(0, 0.0, 64, 2, prompt), RequestSpec(1, 50.0, 64, 2, prompt)]
    result = run(requests, leap=leap)
    assert result.requests["num_cached_tokens"].tolist() == [0, 48]
    assert result.requests["num_scheduled_tokens"].tolist() == [65, 17]
    assert ttft_s(result.requests)[1] < ttft_s(result.requests)[0]


@LEAPS
def test_a_drafter_with_hidden_states_costs_the_last_block_found(leap: bool) -> None:
    """vLLM drops it, since EAGLE's and MTP's heads need the hidden state before their first token.

    The prompts share 64 of 80 tokens, 4 blocks, all of which another drafter may use.
    """
    for method, num_cached in (("draft_model", 64), ("eagle", 48), ("mtp", 48)):
        requests = [
            RequestSpec(i, 50.0 * i, 80, 2, (("system", 64), (f"own {i}", 16))) for i in range(2)
        ]
        drafts = SpeculativeSection(method=method, num_speculative_tokens=2, acceptance_rate=0.0)
        section = EngineSection(speculative_config=drafts, async_scheduling=False)
        result = run(
            requests,
            leap=leap,
            engine={"drafting": resolve_drafting(drafts)},
            **scheduler_drafting_options(section),
        )
        assert result.requests["num_cached_tokens"].tolist() == [0, num_cached]


@LEAPS
def test_a_preempted_request_keeps_its_first_token_and_its_wait_is_a_gap(leap: bool) -> None:
    """Steps of 1 s; 6 usable blocks of 4; both prompts of 11 take 3, and want a fourth in step 3.

    Request 1 gives way with two tokens, out at 1 and 2 s, and waits for request 0, which ends at
    5 s. Then its 13 known tokens are computed in one step, which gives its third token at 6 s.
    """
    requests = [RequestSpec(i, 0.0, 11, 5) for i in range(2)]
    result = run(requests, leap=leap, cost=ConstantCost(1.0), cache=CacheConfig(7, 4, False))
    assert result.requests["num_preemptions"].tolist() == [0, 1]
    assert ttft_s(result.requests).tolist() == [1.0, 1.0]
    assert result.requests["last_token_s"].tolist() == [5.0, 8.0]
    assert tpot_s(result.requests).tolist() == [1.0, 7 / 4]
    gaps = finished_gaps(result.requests, result.steps, result.gaps)
    found = np.sort(np.repeat(gaps.gap_s, gaps.count)).tolist()
    assert found == [1.0] * 4 + [1.0] * 3 + [4.0]
    summary = summarise(result)
    assert summary["latency"]["ttft_s"]["mean"] == 1.0
    assert summary["latency"]["e2e_s"]["mean"] == (5.0 + 8.0) / 2
    assert summary["latency"]["itl_s"]["mean"] == (4 * 1.0 + 3 * 1.0 + 4.0) / 8


@LEAPS
def test_a_longer_prompt_waits_longer_for_its_first_token(leap: bool) -> None:
    """Alone on the engine, token by token of prompt, across chunks and blocks."""
    prompts = [1, 2, 15, 16, 17, 500, 2047, 2048, 2049, 4096, 4097, 8000]
    alone = [run([RequestSpec(0, 0.0, n, 2)], leap=leap) for n in prompts]
    first = [float(ttft_s(result.requests)[0]) for result in alone]
    assert all(later > earlier for earlier, later in pairwise(first))


@LEAPS
def test_requests_that_end_together_have_all_left_when_the_next_ones_are_placed(leap: bool) -> None:
    """Three clients of one-token requests on two replicas, steps of 1 s, no delay.

    Requests 0 and 2 end with replica 0's first step, before replica 1's. Replica 0 is empty then
    and replica 1 still holds a token, so 3 goes to replica 0; 4 finds one token on both, and the
    lower id wins; 5 comes when replica 1 is empty.
    """
    result = run(
        [RequestSpec(i, 0.0, 1, 1) for i in range(6)],
        leap=leap,
        cost=ConstantCost(1.0),
        num_replicas=2,
        router="least-outstanding-tokens",
        load=ClosedLoad(3, 2),
    )
    assert result.requests["replica"].tolist() == [0, 1, 0, 0, 0, 1]
    assert result.requests["arrival_s"].tolist() == [0.0, 0.0, 0.0, 1.0, 1.0, 1.0]
