"""Transforms that select, merge, relabel and move: what they promise, and nothing else changed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traces import (
    RequestSpec,
    Trace,
    TraceError,
    cap_lengths,
    from_zero,
    jitter,
    join_outputs,
    map_priorities,
    merge,
    sample_sessions,
    session_numbers,
    thin,
    window,
    with_priorities,
    with_tenants,
)


def rng(seed: int = 1) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


def chain(number: int, length: int = 3) -> Trace:
    """`number` sessions of `length` turns each."""
    rows = [
        RequestSpec(
            session * length + turn,
            float(session + turn * 100),
            10 + turn,
            5,
            ((session, 10 + turn),),
            session_id=f"s{session}",
            parent_id=session * length + turn - 1 if turn else None,
            think_time_s=2.0 if turn else None,
        )
        for session in range(number)
        for turn in range(length)
    ]
    return Trace.from_requests(rows)


def test_window_keeps_times_and_makes_orphans_first_turns() -> None:
    cut = window(chain(50), 100.0, 150.0)
    assert len(cut) == 50
    assert cut.arrival_s[0] == 100.0
    assert cut.parent_id is None
    assert from_zero(cut).arrival_s[0] == 0.0
    with pytest.raises(TraceError, match="leaves none of the 150"):
        window(chain(50), 5_000.0, 6_000.0)


def test_thinning_keeps_a_share_at_the_same_times() -> None:
    trace = Trace.from_columns(np.arange(20_000), np.ones(20_000), np.ones(20_000))
    thinned = thin(trace, 0.3, rng())
    assert len(thinned) == pytest.approx(6_000, abs=260)
    assert np.array_equal(thinned.arrival_s, thinned.request_id)
    assert thinned.source.transforms == ("thin(share=0.3)",)


def test_sessions_are_sampled_whole() -> None:
    sampled = sample_sessions(chain(3_000), 0.4, rng())
    numbers = np.bincount(session_numbers(sampled))
    assert set(numbers.tolist()) == {3}
    assert len(numbers) == pytest.approx(1_200, abs=110)
    assert sampled.parent_id is not None
    assert (sampled.parent_id >= 0).sum() == 2 * len(numbers)


def test_sessions_without_labels_are_chains() -> None:
    trace = chain(4).with_columns("no names", session_id=None)
    assert session_numbers(trace).tolist() == [0, 1, 2, 3] * 3
    alone = Trace.from_columns([0, 1], [1, 1], [1, 1])
    assert session_numbers(alone).tolist() == [0, 1]


def test_merging_keeps_contents_apart_and_sessions_whole() -> None:
    one, other = chain(2), chain(1, 4)
    merged = merge([one, other], ["x", None])
    assert len(merged) == 10
    assert merged.request_id.tolist() == list(range(10))
    assert merged.session_id is not None
    assert set(merged.session_id.names) == {"0/s0", "0/s1", "1/s0"}
    assert [r.tenant for r in merged].count("x") == 6
    prompts = {r.session_id: {segment for segment, _ in r.prompt} for r in merged}
    assert len(set.union(*prompts.values())) == 3
    assert np.bincount(session_numbers(merged)).tolist() == [3, 4, 3]
    assert all(r.think_time_s == 2.0 for r in merged if r.parent_id is not None)
    shared = merge([one, other], shared=True)
    assert {segment for r in shared for segment, _ in r.prompt} == {0, 1}


def test_merged_outputs_follow_their_requests() -> None:
    rows = [
        RequestSpec(0, 5.0, 10, 4, (("a", 10),)),
        RequestSpec(1, 9.0, 17, 4, (("a", 10), ("out:0", 4), ("b", 3)), parent_id=0),
    ]
    merged = merge([Trace.from_columns([0.0], [1], [1]), Trace.from_requests(rows)])
    assert merged[2].parent_id == 1
    assert merged[2].prompt == (("1/a", 10), ("out:1", 4), ("1/b", 3))


def test_labels_are_drawn_once_a_session() -> None:
    trace = with_priorities(chain(2_000), {5: 1.0, 0: 3.0}, rng())
    numbers = session_numbers(trace)
    firsts = {int(n): int(p) for n, p in zip(numbers, trace.priority, strict=True)}
    assert all(firsts[int(n)] == p for n, p in zip(numbers, trace.priority, strict=True))
    assert (trace.priority == 0).mean() == pytest.approx(0.75, abs=0.04)
    named = with_tenants(chain(5), {"t": 1.0}, rng())
    assert [r.tenant for r in named] == ["t"] * 15
    with pytest.raises(TraceError, match="tenant_weights"):
        with_tenants(chain(5), {"t": -1.0}, rng())


def test_priorities_are_mapped_at_once() -> None:
    trace = Trace.from_columns([0, 1, 2], [1] * 3, [1] * 3, priority=[0, 1, 2])
    assert map_priorities(trace, {0: 1, 1: 0}).priority.tolist() == [1, 0, 2]


def test_capped_prompts_keep_their_beginning() -> None:
    trace = Trace.from_columns(
        [0, 1], [30, 5], [9, 2], prompts=[(("a", 20), ("b", 10)), (("a", 5),)]
    )
    capped = cap_lengths(trace, 24, 4)
    assert [r.prompt for r in capped] == [(("a", 20), ("b", 4)), (("a", 5),)]
    assert capped.num_prompt_tokens.tolist() == [24, 5]
    assert capped.num_output_tokens.tolist() == [4, 2]
    assert cap_lengths(trace, None, 4).num_prompt_tokens.tolist() == [30, 5]
    with pytest.raises(TraceError, match="max_prompt_tokens: 0"):
        cap_lengths(trace, 0)


@given(stamps=st.lists(st.integers(0, 6), min_size=1, max_size=30), seed=st.integers(0, 5))
def test_jitter_spreads_within_the_grid_and_keeps_the_order(stamps: list[int], seed: int) -> None:
    ones = [1] * len(stamps)
    trace = Trace.from_columns([3.0 * stamp for stamp in sorted(stamps)], ones, ones)
    moved = jitter(trace, 3.0, rng(seed))
    assert moved.request_id.tolist() == trace.request_id.tolist()
    shifts = moved.arrival_s - trace.arrival_s
    assert np.all((shifts >= 0) & (shifts < 3.0))


def test_jitter_is_uniform() -> None:
    ones = np.ones(9_000)
    trace = Trace.from_columns(np.repeat([0.0, 3.0, 6.0], 3_000), ones, ones)
    shifts = np.sort(jitter(trace, 3.0, rng()).arrival_s % 3.0)
    uniform = (np.arange(9_000) + 0.5) / 9_000 * 3.0
    # Kolmogorov-Smirnov: 1.95 / sqrt(n) is passed once in a thousand
    assert np.abs(shifts - uniform).max() / 3.0 < 1.95 / np.sqrt(9_000)


def blocks(*ids: int, rest: int = 0) -> tuple[tuple[int | str, int], ...]:
    return tuple((i, 16) for i in ids) + ((("rest", rest),) if rest else ())


def two_turns(parent_prompt: object, prompt: object, length: int, child_length: int) -> Trace:
    rows = [
        RequestSpec(0, 0.0, length, 20, parent_prompt),  # type: ignore[arg-type]
        RequestSpec(1, 9.0, child_length, 5, prompt, parent_id=0),  # type: ignore[arg-type]
    ]
    return Trace.from_requests(rows).with_source(block_size=16)


def test_outputs_are_put_where_the_prompt_goes_on() -> None:
    # 36 prompt and 20 output tokens are 56; blocks 3 and 4 end at 64 and 80
    trace = two_turns(blocks(1, 2, rest=4), blocks(1, 2, 3, 4, 5), 36, 80)
    joined = join_outputs(trace)
    assert joined[1].prompt == (
        (1, 16),
        (2, 16),
        ("rest", 4),
        ("out:0", 20),
        ("4@8", 8),
        (5, 16),
    )
    assert joined[0].prompt == trace[0].prompt
    assert join_outputs(joined).content_sha256 == joined.content_sha256


def test_a_prompt_that_goes_another_way_keeps_what_is_common() -> None:
    trace = two_turns(blocks(1, 2, 3), blocks(1, 2, 8, 9, 10), 48, 80)
    assert join_outputs(trace)[1].prompt == blocks(1, 2, 8, 9, 10)
    short = two_turns(blocks(1, 2), blocks(1, 2, 3), 32, 48)  # no room for 20 outputs
    assert join_outputs(short)[1].prompt == blocks(1, 2, 3)


def test_wrong_parents_are_refused() -> None:
    with pytest.raises(TraceError, match="request 1, parent_id: there is no request 7"):
        Trace.from_columns([0, 1], [1, 1], [1, 1], parent_id=[-1, 7])
    with pytest.raises(TraceError, match="request 0, parent_id: 1 comes no earlier"):
        Trace.from_columns([0, 1], [1, 1], [1, 1], parent_id=[1, -1])
    with pytest.raises(TraceError, match="request 0, think_time_s: -1"):
        Trace.from_columns([0], [1], [1], think_time_s=[-1.0])
    with pytest.raises(TraceError, match="request 0, lora_id: -1"):
        Trace.from_columns([0], [1], [1], lora_id=[-1])
