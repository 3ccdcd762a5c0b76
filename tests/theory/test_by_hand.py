"""Runs small enough to be worked out by hand."""

from __future__ import annotations

import pytest

from calibration import ConstantCost, LinearCost
from sim.config import ClosedLoad
from sim.metrics import e2e_s, tpot_s, ttft_s
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
    cost = others.pop("cost", COST)
    return simulate(
        make_study(
            requests,
            SchedulerConfig(**known),  # type: ignore[arg-type]
            CacheConfig(1000),
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
