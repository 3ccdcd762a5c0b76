"""Load-test outputs in our definitions, on files made as the tools document them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from traces import Measured, TraceError, load, load_measured

Write = Callable[..., Path]

VLLM = {
    "date": "20250101",
    "completed": 2,
    "request_throughput": 1.0,
    "input_lens": [100, 200, 50],
    "output_lens": [3, 1, 0],
    "ttfts": [0.5, 0.25, 0.0],
    "itls": [[0.02, 0.04], [], []],
    "start_times": [1000.0, 1000.5, 1001.0],
    "errors": ["", "", "Traceback\nTimeoutError"],
}


def vllm(**changes: Any) -> str:
    return json.dumps(VLLM | changes)


def aiperf(turn: int = 0, start: int = 10**18, end: int | None = None, **changes: Any) -> str:
    record: dict[str, Any] = {
        "metadata": {
            "x_correlation_id": "c",
            "turn_index": turn,
            "request_start_ns": start,
            "request_end_ns": end or start + 10**9,
            "benchmark_phase": "profiling",
            "was_cancelled": False,
        },
        "metrics": {
            "input_sequence_length": {"value": 550, "unit": "tokens"},
            "output_sequence_length": {"value": 9, "unit": "tokens"},
            "time_to_first_token": {"value": 250.0, "unit": "ms"},
            "request_latency": {"value": 0.29, "unit": "s"},
            "inter_token_latency": {"value": 5.0, "unit": "ms"},
            "inter_chunk_latency": {"value": [4.0, 6.0], "unit": "ms"},
        },
        "error": None,
    }
    record["metadata"] |= changes.pop("metadata", {})
    return json.dumps(record | changes) + "\n"


def guidellm(*benchmarks: list[dict[str, Any]]) -> str:
    groups = [
        {"requests": {"successful": requests, "errored": [], "incomplete": [{"prompt_tokens": 4}]}}
        for requests in benchmarks
    ]
    return json.dumps({"metadata": {"version": 1}, "benchmarks": groups})


NEW = {
    "request_start_time": 100.0,
    "request_end_time": 101.5,
    "request_latency": 1.5,
    "prompt_tokens": 40,
    "output_tokens": 11,
    "time_to_first_token_ms": 500.0,
    "time_per_output_token_ms": 136.4,
    "inter_token_latency_ms": 100.0,
}
OLD = {"start_time": 100.5, "end_time": 103.0, "prompt_tokens": 40, "output_tokens": 6}


def only(measured: Measured) -> Any:
    (request,) = measured.succeeded
    return request


def test_vllm_bench(write: Write) -> None:
    measured = load_measured(write(vllm(), "r.json"))
    one, other = measured.succeeded
    assert measured.tool == "vllm bench serve"
    assert (one.ttft_s, one.e2e_s, one.tpot_s) == (0.5, pytest.approx(0.56), pytest.approx(0.03))
    assert one.gaps_s == [0.02, 0.04]
    assert (other.e2e_s, other.num_prompt_tokens) == (0.25, 200)
    assert len(measured.values("tpot_s")) == 1  # one token has no gap
    assert measured.num_failed == {"TimeoutError": 1}
    trace = load(write(vllm(), "r.json"))
    assert trace.source.format == "vllm-bench"
    assert trace.arrival_s.tolist() == [0.0, 0.5]
    assert trace.source.dropped == {"zero output tokens": 1}


def test_vllm_bench_without_start_times_says_so(write: Write) -> None:
    without = {key: value for key, value in VLLM.items() if key != "start_times"}
    path = write(json.dumps(without), "r.json")
    assert len(load_measured(path).succeeded) == 2
    assert any("same instant" in warning for warning in load(path).source.warnings)


def test_aiperf(write: Write) -> None:
    measured = load_measured(write(aiperf(), "p.jsonl"))
    request = only(measured)
    assert (request.ttft_s, request.tpot_s, request.e2e_s) == (0.25, 0.005, 0.29)
    assert request.gaps_s == [0.004, 0.006]
    assert (request.num_prompt_tokens, request.num_output_tokens) == (550, 9)
    assert any("one mean a request" in note for note in measured.notes)


def test_aiperf_failures_and_warm_up_are_left_out(write: Write) -> None:
    failed = aiperf(error={"code": 499, "type": "RequestCancellationError"}, metrics=None)
    text = aiperf() + failed + aiperf(metadata={"benchmark_phase": "warmup"})
    measured = load_measured(write(text, "p.jsonl"))
    assert measured.num_failed == {"RequestCancellationError": 1, "warmup phase": 1}


def test_aiperf_sessions_are_chained(write: Write) -> None:
    second = 10**9
    text = aiperf(0, second, 3 * second) + aiperf(1, 5 * second) + aiperf(2, 9 * second)
    trace = load(write(text, "p.jsonl"))
    assert [(r.parent_id, r.think_time_s) for r in trace] == [(None, None), (0, 2.0), (1, 3.0)]
    assert trace.arrival_s.tolist() == [0.0, 4.0, 8.0]


def test_guidellm_new_and_old_names(write: Write) -> None:
    measured = load_measured(write(guidellm([NEW, OLD]), "b.json"))
    new, old = measured.succeeded
    assert (new.ttft_s, new.e2e_s) == (0.5, 1.5)
    assert new.tpot_s == 0.1  # not time_per_output_token_ms, which has the first token in it
    assert (old.e2e_s, old.sent_s) == (2.5, 100.5)
    assert len(measured.values("ttft_s")) == 1
    assert measured.num_failed == {"incomplete": 1}
    trace = load(write(guidellm([NEW], [OLD]), "b.json"))
    assert trace.num_output_tokens.tolist() == [11, 6]


def test_guidellm_benchmarks_are_chosen(write: Write) -> None:
    path = write(guidellm([NEW], [OLD]), "b.json")
    with pytest.raises(TraceError, match="holds 2 benchmarks; choose one"):
        load_measured(path)
    assert only(load_measured(path, 1)).num_output_tokens == 6
    with pytest.raises(TraceError, match="benchmark 2 is wrong"):
        load_measured(path, 2)


def test_recorded_vllm_runs_have_upstreams_means(shared_dir: Path) -> None:
    folder = shared_dir / "data/truth/llmservingsim_bench/RTXPRO6000"
    for model, ttft_ms, tpot_ms in (("Llama-3.1-8B", 7097.2, 32.46), ("Qwen3-32B", 36905.2, 80.31)):
        measured = load_measured(folder / model / "requests.jsonl")
        assert measured.values("ttft_s").mean() * 1e3 == pytest.approx(ttft_ms, abs=0.1)
        assert measured.values("tpot_s").mean() * 1e3 == pytest.approx(tpot_ms, abs=0.01)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"completed": 1, "request_throughput": 1}', "--save-detailed"),
        (vllm(itls=[[]]), "itls has 1 values, but input_lens has 3"),
        (vllm(ttfts=[0.5, -1, 0]), "request 2, ttfts: -1"),
        (vllm(output_lens=[3, "x", 0]), "request 2, output_lens: 'x'"),
        (vllm()[:-30], "line 1: this is no JSON"),
        (aiperf(metadata={"request_start_ns": -1}), "line 1, request_start_ns: -1"),
        (aiperf(metrics={"time_to_first_token": 5}), "line 1, time_to_first_token: 5"),
        (aiperf() + "{", "line 2: this is no JSON"),
        ('{"benchmarks": 5}', "key 'benchmarks' 5 is wrong"),
        ('{"benchmarks": [5]}', "a benchmark must have requests"),
        (guidellm([NEW | {"prompt_tokens": -4}]), "successful request 1, prompt_tokens: -4"),
        (guidellm([NEW | {"request_latency": "x"}]), "request_latency: 'x'"),
        ("hello\n", "no load-test result known"),
    ],
)
def test_wrong_results_name_what_is_wrong(write: Write, text: str, words: str) -> None:
    with pytest.raises(TraceError) as caught:
        load_measured(write(text, "r.json"))
    assert words in str(caught.value)
    assert "r.json" in str(caught.value)
