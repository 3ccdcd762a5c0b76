"""`trace_info` against numpy on the whole columns, and the pools against plain simulations."""

import subprocess
import sys
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traces import Prompt, Trace, load, open_trace, save, trace_info
from traces.histogram import Histogram
from traces.info import TraceInfo
from traces.prefix_pool import HitCount, PrefixPools


def info_of(path: Path) -> TraceInfo:
    return trace_info(open_trace(path), lambda: open_trace(path))


@given(chunks=st.lists(st.lists(st.integers(0, 9), min_size=1), min_size=1))
def test_histogram_is_the_whole_sample(chunks: list[list[int]]) -> None:
    histogram = Histogram()
    for chunk in chunks:
        histogram.add(np.array(chunk))
    every = np.concatenate([np.array(chunk) for chunk in chunks])
    assert (histogram.total, histogram.sum) == (len(every), every.sum())
    for percent in (0, 10, 50, 99, 100):
        assert histogram.percentile(percent) == pytest.approx(np.percentile(every, percent))


def test_info_agrees_with_loading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.Generator(np.random.PCG64(4))
    times = np.cumsum(rng.exponential(0.5, 1_000))
    lengths = rng.integers(1, 500, (2, 1_000))
    path = tmp_path / "t.csv"
    save(Trace.from_columns(times, *lengths), path)
    monkeypatch.setattr("traces.rows.ROWS_PER_CHUNK", 64)
    facts = info_of(path).to_dict()
    trace = load(path)
    gaps = np.diff(trace.arrival_s)
    minutes = np.bincount((trace.arrival_s // 60).astype(int))
    assert facts["requests"] == 1_000
    assert facts["span_s"] == pytest.approx(trace.duration_s)
    assert facts["rate_per_s"] == pytest.approx(1 / gaps.mean())
    assert facts["gap_cv"] == pytest.approx(gaps.std() / gaps.mean())
    assert facts["peak_minute_per_s"] == minutes.max() / 60
    assert facts["prompt_tokens"]["p95"] == pytest.approx(np.percentile(lengths[0], 95))
    assert facts["output_tokens"]["mean"] == pytest.approx(lengths[1].mean())
    assert facts["prefix"] is None


def test_a_trace_shorter_than_a_minute_has_no_peak_minute(tmp_path: Path) -> None:
    """Its requests over 60 s would be less than its mean rate."""
    path = tmp_path / "t.csv"
    save(Trace.from_columns(np.arange(3.0), np.full(3, 5), np.full(3, 1)), path)
    assert info_of(path).to_dict()["peak_minute_per_s"] is None


def test_unsorted_times_are_sorted_for_their_gaps(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    rows = [f"{time},1,1\n" for time in (4, 0, 1, 9, 0.5)]
    path.write_text("arrival_s,num_prompt_tokens,num_output_tokens\n" + "".join(rows))
    found = info_of(path)
    gaps = np.diff(sorted((4, 0, 1, 9, 0.5)))
    assert found.gaps.cv == pytest.approx(gaps.std() / gaps.mean())
    assert found.num_early == 2
    assert found.span_s == 9


@pytest.mark.parametrize(("name", "share"), [("conversation", 0.366), ("synthetic", 0.640)])
def test_mooncake_hits_are_the_published_ones(shared_dir: Path, name: str, share: float) -> None:
    trace = load(shared_dir / f"data/traces/mooncake_fast25/{name}_trace.jsonl")
    pools = PrefixPools(512, bounded=())
    for request in trace:
        sizes = (request.num_prompt_tokens, request.num_output_tokens)
        pools.serve(request.request_id, request.prompt, *sizes)
    assert pools.unbounded.hit_blocks / pools.num_blocks == pytest.approx(share, abs=0.0005)


BLOCK = 4


def block_lru(prompts: list[list[int]], limit: int) -> int:
    """Hits of an LRU of whole blocks, ends going first; ids stand for all before them."""
    pool: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for prompt in prompts:
        known = next((i for i, block in enumerate(prompt) if block not in pool), len(prompt))
        hits += known
        for block in reversed(prompt):
            pool.pop(block, None)
            pool[block] = None
        while len(pool) > limit:
            pool.popitem(last=False)
    return hits


@given(
    paths=st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=5), max_size=25),
    limit=st.integers(1, 12),
)
def test_bounded_pool_is_a_block_lru(paths: list[list[int]], limit: int) -> None:
    # a block's id is the path to it, so equal ids have equal beginnings
    prompts = [
        [int("1" + "".join(map(str, path[: i + 1]))) for i in range(len(path))] for path in paths
    ]
    pools = PrefixPools(BLOCK, bounded=(HitCount(limit * BLOCK),))
    for number, prompt in enumerate(prompts):
        pools.serve(number, tuple((block, BLOCK) for block in prompt), BLOCK * len(prompt), 1)
    assert pools.bounded[0].hit_blocks == block_lru(prompts, limit)


@pytest.mark.parametrize(
    ("first", "second", "hit_tokens"),
    [
        ((("a", 10),), (("a", 6), ("b", 9)), 4),  # 6 shared, whole blocks of 4
        ((("a", 10),), (("a", 10),), 8),
        ((("a", 8),), (("a", 8),), 4),  # the last token must be computed
        ((("a", 6), ("b", 4)), (("a", 5), ("b", 4)), 4),  # another b: it follows another prefix
        ((("a", 8),), (("a", 8), ("out:0", 5), ("c", 3)), 12),  # 4 of 5 outputs have KV entries
    ],
)
def test_hits_are_whole_blocks_of_equal_beginnings(
    first: Prompt, second: Prompt, hit_tokens: int
) -> None:
    pools = PrefixPools(4)
    pools.serve(0, first, sum(n for _, n in first), 5)
    pools.serve(1, second, sum(n for _, n in second), 5)
    assert pools.unbounded.hit_tokens == hit_tokens
    other = PrefixPools(4)
    other.serve(0, first, sum(n for _, n in first), 5, lora_id=1)
    other.serve(1, second, sum(n for _, n in second), 5)
    assert other.unbounded.hit_tokens == 0


SCRIPT = """
import resource, sys
from traces import open_trace, trace_info
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
found = trace_info(open_trace(sys.argv[1]), lambda: open_trace(sys.argv[1]))
print(found.num_requests, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_memory_does_not_grow_with_the_file(write: Callable[..., Path]) -> None:
    stamps = np.datetime64("2024-05-12") + np.arange(200_000) * np.timedelta64(50, "ms")
    texts = np.datetime_as_string(stamps, unit="ms").tolist()
    rows = "".join(f"{text}+00:00,{i % 5000 + 1},{i % 900 + 1}\n" for i, text in enumerate(texts))
    path = write("TIMESTAMP,ContextTokens,GeneratedTokens\n" + rows)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(path)], capture_output=True, text=True, check=True
    )
    number, grown_kib = map(int, done.stdout.split())
    assert number == 200_000
    # one chunk of 65,536 rows in Python lists; the whole file would be some 150 MB of them
    assert grown_kib < 80_000
