import dataclasses
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.metrics import (
    GLOSSARY,
    finished_gaps,
    is_finished,
    meaning,
    pooled_gaps,
    stats_of,
    summarise,
    tpot_s,
)
from sim.metrics.counts import speculative_counts
from sim.run_result import RunResult, Slo
from tests.sim.hand_run import hand_run
from tests.sim.toy_run import ToyRequest, toy_requests, toy_run


@pytest.fixture(scope="module")
def summary():
    return summarise(hand_run())


def flattened(value, path=""):
    """Every figure of a summary by its place."""
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    else:
        return {path: value}
    return {k: v for name, each in items for k, v in flattened(each, f"{path}.{name}").items()}


def expect(section, **figures):
    assert {name: section[name] for name in figures} == pytest.approx(figures)


def test_counts_by_state_and_reason(summary):
    counts = summary["requests"]
    assert counts["arrived_requests"] == 4
    assert counts["finished_requests"] == 2
    assert (counts["rejected_requests"], counts["aborted_requests"]) == (1, 1)
    assert counts["unfinished_requests"] == 0
    assert counts["requests_by_reason"] == {
        "finished": {"length": 2},
        "rejected": {"max_model_len": 1},
        "aborted": {"client": 1},
    }


def test_latencies_are_of_finished_requests_only(summary):
    latency = summary["latency"]
    expect(latency["ttft_s"], count=2, mean=1.5, p50=1.5, max=2.0)  # 1 - 0 and 3 - 1
    expect(latency["e2e_s"], count=2, mean=3.5, max=5.0)  # 5 - 0 and 3 - 1
    expect(latency["queue_time_s"], count=2, mean=0.25, max=0.5)
    # Only request 0 has a gap: (5 - 1) / 2.
    expect(latency["tpot_s"], count=1, mean=2.0, p99=2.0)


def test_pooled_itl_leaves_out_the_gaps_of_the_aborted_request(summary):
    # Request 0: 2 - 1 and 5 - 2. The aborted one's gap of 1.5 (3.5 - 2) is not there.
    expect(summary["latency"]["itl_s"], count=2, mean=2.0, p50=2.0, max=3.0)
    run = hand_run()
    assert sorted(pooled_gaps(run.steps, run.gaps).gap_s) == [1.0, 1.5, 3.0]


def test_a_stall_shows_in_pooled_itl_and_hides_in_tpot():
    # 99 gaps of 10 ms and one of 200 ms, in one request: its mean gap is 11.9 ms.
    gap = np.array([0.010, 0.200])
    pooled = stats_of(gap, np.array([99, 1]))
    per_request = stats_of(np.array([(99 * 0.010 + 0.200) / 100]))
    assert pooled["max"] == 0.2
    assert per_request["max"] == pytest.approx(0.0119)


def test_throughput_over_first_arrival_to_last_completion(summary):
    expect(
        summary["throughput"],
        span_s=5.0,
        requests_per_s=2 / 5,
        input_tokens_per_s=16 / 5,
        output_tokens_per_s=4 / 5,
    )


def test_steady_window_is_the_middle_half_of_the_arrivals(summary):
    # Arrivals from 0 to 4 s: window 1 <= t < 3 s. In it no completion (3.0 is outside), the first
    # tokens of requests 0 and 2 (1.0 and 2.0 s), and steps that end at 1.0 and 2.0 s: three tokens.
    expect(
        summary["steady_window"],
        start_s=1.0,
        end_s=3.0,
        requests_per_s=0.0,
        input_tokens_per_s=15 / 2,
        output_tokens_per_s=3 / 2,
    )


def test_goodput_counts_each_slo(summary):
    # Request 0 meets both limits, request 1 breaks TTFT <= 1.5 s.
    expect(
        summary["goodput"],
        good_requests=1,
        good_requests_per_s=1 / 5,
        good_share_of_finished=1 / 2,
        good_share_of_arrived=1 / 4,
    )


def test_a_request_of_one_token_can_not_break_a_tpot_limit():
    run = hand_run()
    run = dataclasses.replace(run, info=dataclasses.replace(run.info, slo=Slo(tpot_s=0.1)))
    assert summarise(run)["goodput"]["good_requests"] == 1


def test_no_slo_no_goodput():
    run = hand_run()
    run = dataclasses.replace(run, info=dataclasses.replace(run.info, slo=Slo()))
    assert summarise(run)["goodput"] is None


def test_kv_usage_leaves_out_the_null_block(summary):
    # Block-seconds: replica 0: 2*0.5 + 4*1 + 4*1.5 + 2*1 = 13; replica 1: 1*2 = 2.
    # Usable blocks 4 and 8 over 5 s: 60; while busy: 4*4 + 8*2 = 32.
    expect(
        summary["kv_cache"],
        usable_blocks=12,
        usage_mean_share=15 / 60,
        usage_mean_busy_share=15 / 32,
        usage_peak_share=1.0,
    )


def test_steps_and_replicas(summary):
    expect(
        summary["steps"],
        steps=5,
        batch_mean_tokens=20 / 5,
        batch_mean_requests=6 / 5,
        step_mean_s=6.0 / 5,
        step_max_s=2.0,
    )
    expect(summary["replicas"][0], requests=2, steps=4, busy_s=4.0, busy_share=4 / 5)
    expect(summary["replicas"][1], requests=1, steps=1, busy_s=2.0, busy_share=2 / 5)


def test_prefix_hits_at_first_admission_and_with_readmissions():
    run = hand_run()
    run.requests["num_readmission_cached_tokens"][0] = 3
    run.requests["num_preempted_tokens"][0] = 10
    run.requests["num_preemptions"][0] = 2
    summary = summarise(run)
    expect(
        summary["prefix_cache"],
        admitted_prompt_tokens=21,  # the rejected request was never admitted
        hit_tokens=4,
        hit_share_of_prompt_tokens=4 / 21,
        hit_tokens_with_readmissions=7,
        hit_share_of_all_tokens=7 / (7 + 20),
    )
    expect(
        summary["preemption"],
        preemptions=2,
        preempted_requests=1,
        lost_tokens=10,
        readmission_hit_tokens=3,
        recomputed_tokens=7,
    )


def test_every_figure_has_a_meaning_and_every_meaning_a_figure(summary):
    sections = {k: v for k, v in summary.items() if k not in ("schema_version", "run")}
    one = np.ones(1, np.int64)
    drafts = {"num_draft_tokens": 3 * one, "num_accepted_tokens": one, "num_verifications": one}
    sections["speculative"] = speculative_counts(drafts)
    sections["time_split"] = {"shares": {"decoding": 1.0}, "waits": [{"priority": 0}]}
    seen = set()
    for path in leaf_paths(sections):
        assert meaning(path)
        parts = [part for part in path.split(".") if not part.isdigit()]
        seen |= {".".join(parts[:2])}
    assert seen == set(GLOSSARY)


def leaf_paths(value, path=""):
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaf_paths(item, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from leaf_paths(item, f"{path}.{index}")
    else:
        yield path


@pytest.mark.parametrize("requests", [[], [ToyRequest(0, 0.0, 10**7, 5)]])
def test_a_run_in_which_nothing_ran_has_no_figures_and_no_nan(requests):
    summary = summarise(toy_run(requests))
    json.dumps(summary, allow_nan=False)
    assert summary["latency"]["ttft_s"]["count"] == 0
    assert summary["throughput"]["requests_per_s"] is None
    assert summary["kv_cache"]["usage_mean_share"] is None


def test_the_window_of_a_stopped_run_ends_with_its_steps():
    run = toy_run(toy_requests(200, 10.0, seed=5), until_s=4.0)
    window = summarise(run)["steady_window"]
    assert window["end_s"] == pytest.approx(0.75 * run.steps["end_s"].max())
    assert window["output_tokens_per_s"] > 0


def token_gaps_of(requests: list[ToyRequest]) -> np.ndarray:
    return np.concatenate([np.diff(r.token_s) for r in requests] or [np.array([])])


TOY_LOADS = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 10_000),
        "num_replicas": st.integers(1, 3),
        "num_gpu_blocks": st.sampled_from([30, 60, 1000]),
        "max_num_batched_tokens": st.sampled_from([8, 64, 512]),
        "until_s": st.sampled_from([1.0, 3.0, float("inf")]),
        "num_aborted": st.integers(0, 15),
    }
)


def toy_load(seed, num_aborted, **options) -> tuple[list[ToyRequest], RunResult]:
    requests = toy_requests(40, 20.0, seed, mean_prompt=60, mean_output=15)
    aborts = {i: requests[i].arrival_s + 0.2 for i in range(0, 40, 3)[:num_aborted]}
    return requests, toy_run(requests, aborts=aborts, **options)


@settings(deadline=None, max_examples=40)
@given(TOY_LOADS)
def test_itl_equals_the_gaps_counted_one_by_one(load):
    """With preemption, stalls, aborts and unfinished requests, against each token's own time."""
    requests, run = toy_load(**load)
    every = pooled_gaps(run.steps, run.gaps)
    expanded = np.repeat(every.gap_s, every.count)
    np.testing.assert_allclose(np.sort(expanded), np.sort(token_gaps_of(requests)), rtol=1e-9)

    finished = [r for r in requests if r.state == "finished"]
    sample = finished_gaps(run.requests, run.steps, run.gaps)
    expanded = np.repeat(sample.gap_s, sample.count)
    np.testing.assert_allclose(np.sort(expanded), np.sort(token_gaps_of(finished)), rtol=1e-9)


@settings(deadline=None, max_examples=20)
@given(TOY_LOADS)
def test_latency_counts_are_the_finished_requests(load):
    _, run = toy_load(**load)
    summary = summarise(run)
    finished = summary["requests"]["finished_requests"]
    for name in ("ttft_s", "e2e_s", "queue_time_s"):
        assert summary["latency"][name]["count"] == finished
    several = is_finished(run.requests) & (run.requests["num_output_tokens"] > 1)
    assert summary["latency"]["tpot_s"]["count"] == several.sum()
    assert np.isnan(tpot_s(run.requests)[~several]).all()


@settings(deadline=None, max_examples=20)
@given(TOY_LOADS, st.integers(1, 7))
def test_the_size_of_the_pieces_walked_over_does_not_matter(load, rows):
    """What is carried from one piece of the steps to the next is all that the next one needs."""
    _, run = toy_load(**load)
    whole = finished_gaps(run.requests, run.steps, run.gaps)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sim.rows.ROW_GROUP_ROWS", rows)
        pieces = finished_gaps(run.requests, run.steps, run.gaps)
        summary = summarise(run)
    assert pieces.gap_s.tolist() == whole.gap_s.tolist()
    assert pieces.count.tolist() == whole.count.tolist()
    flat, expected = flattened(summary), flattened(summarise(run))
    assert flat.keys() == expected.keys()
    for name, value in flat.items():
        right = expected[name]
        assert value == (pytest.approx(right, rel=1e-12) if isinstance(right, float) else right)
