"""What each recorded format means, on files made in the same shapes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from traces import TraceError, load

Write = Callable[..., Path]


def lines(*records: dict[str, Any]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def mooncake(time: float, prompt: int, ids: list[int] | None, out: int = 5) -> dict[str, Any]:
    record: dict[str, Any] = {"timestamp": time, "input_length": prompt, "output_length": out}
    return record if ids is None else record | {"hash_ids": ids}


def test_mooncake_blocks_are_segments_the_last_one_partial(write: Write) -> None:
    trace = load(write(lines(mooncake(0, 1100, [7, 8, 9]), mooncake(1500, 512, [7]))))
    assert trace[0].prompt == ((7, 512), (8, 512), (9, 76))
    assert trace[1].prompt == ((7, 512),)
    assert trace.arrival_s.tolist() == [0.0, 1.5]
    assert (trace.source.time_unit, trace.source.block_size) == ("ms", 512)


def test_mooncake_without_hash_ids_shares_nothing(write: Write) -> None:
    trace = load(write(lines(mooncake(0, 1100, None), mooncake(5, 9, [1]))))
    assert [request.prompt for request in trace] == [(), ((1, 9),)]


@pytest.mark.parametrize(
    ("ids_of", "size", "full_only"),
    [
        (lambda n: list(range(-(-n // 16))), 16, False),
        (lambda n: list(range(-(-n // 64))), 64, False),
        (lambda n: list(range(n // 16)), 16, True),
    ],
)
def test_block_size_is_found_from_the_lengths(
    write: Write, ids_of: Any, size: int, full_only: bool
) -> None:
    path = write(lines(*(mooncake(i, n, ids_of(n)) for i, n in enumerate((100, 217, 3000)))))
    trace = load(path)
    assert trace.source.block_size == size
    assert trace.source.reading is not None
    assert ("full blocks" in trace.source.reading) == full_only
    assert [sum(n for _, n in request.prompt) for request in trace] == [100, 217, 3000]
    assert trace[0].prompt[-1][1] == 100 % size


@pytest.mark.parametrize(("ids", "words"), [([1, 2, 3], "3 ids"), ([1], "1 ids"), ([], "0 ids")])
def test_too_many_or_too_few_hash_ids_name_the_line(
    write: Write, ids: list[int], words: str
) -> None:
    path = write(lines(mooncake(0, 512, [1]), mooncake(0, 600, ids)))
    with pytest.raises(TraceError, match=f"line 2: hash_ids has {words}.*input_length 600 has 2"):
        load(path, block_size=512)


@pytest.mark.parametrize("ids", [[1.5, 2], ["a", 2], [True, 2], [2**63, 2], 7, {"a": 1}])
def test_hash_ids_are_whole_numbers(write: Write, ids: Any) -> None:
    path = write(lines(mooncake(0, 512, [1]), mooncake(0, 600, ids)))
    with pytest.raises(TraceError, match="line 2, hash_ids: "):
        load(path, block_size=512)


def qwen(chat: int, parent: int, time: float, ids: list[int], out: int = 4) -> dict[str, Any]:
    return {
        "chat_id": chat,
        "parent_chat_id": parent,
        "timestamp": time,
        "input_length": 16 * len(ids),
        "output_length": out,
        "type": "text",
        "turn": 1,
        "hash_ids": ids,
    }


def test_qwen_turns_are_chained_by_chat_id(write: Write) -> None:
    rows = [
        qwen(50, -1, 1.0, [1]),
        qwen(60, -1, 2.0, [9]),
        qwen(51, 50, 3.0, [1, 2]),
        qwen(52, 51, 4.5, [1, 2, 3]),
        qwen(70, 33, 5.0, [4]),
        qwen(71, 70, 6.0, [4, 5], out=0),
    ]
    trace = load(write(lines(*rows)))
    assert [request.parent_id for request in trace] == [None, None, 0, 2, None]
    assert [request.session_id for request in trace] == ["50", "60", "50", "50", "33"]
    assert trace.think_time_s is None
    assert trace[3].prompt == ((1, 16), (2, 16), (3, 16))
    assert trace.source.dropped == {"zero output tokens": 1}
    assert trace.arrival_s.tolist() == [0.0, 1.0, 2.0, 3.5, 4.0]


def test_burstgpt_columns_are_found_by_name_and_sessions_followed(write: Write) -> None:
    text = (
        "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,"
        "Log Type\n"
        "100.0,abc,5,GPT-4,10,20,30,Conversation log\n"
        "101.0,,1,ChatGPT,11,21,32,API log\n"
        "120.0,abc,2,GPT-4,40,0,40,Conversation log\n"
        "130.5,abc,2,GPT-4,50,60,110,Conversation log\n"
    )
    trace = load(write(text))
    assert trace.source.format == "burstgpt"
    assert trace.num_prompt_tokens.tolist() == [10, 11, 50]
    assert [request.session_id for request in trace] == ["abc", None, "abc"]
    # the failure between is no turn: 130.5 - (100 + 5)
    assert [(r.parent_id, r.think_time_s) for r in trace] == [(None, None), (None, None), (0, 25.5)]
    assert trace.source.dropped == {"zero output tokens": 1}
    old = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    first = load(write(old + "5,ChatGPT,472,18,490,Conversation log\n"))
    assert (first[0].num_prompt_tokens, first[0].num_output_tokens) == (472, 18)


def test_traces_without_arrivals_say_so(write: Write) -> None:
    for header in ("num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio", None):
        text = (
            f"{header}\n5,1,6,5.0\n6,2,8,3.0\n" if header else "prompt_size,token_size\n5,1\n6,2\n"
        )
        trace = load(write(text))
        assert trace.arrival_s.tolist() == [0.0, 0.0]
        assert any("no arrival times" in warning for warning in trace.source.warnings)


def test_multimodal_azure_reads_past_images(write: Write) -> None:
    text = "TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n2024-10-15T12:00:00.269Z,3,770,491\n"
    trace = load(write(text))
    assert (trace[0].num_prompt_tokens, trace.source.format) == (770, "azure")
    assert any("images are not modelled" in warning for warning in trace.source.warnings)


def weka(t: float, length: int, ids: list[int], **more: Any) -> dict[str, Any]:
    usual = {"type": "n", "t": t, "in": length, "out": 7, "hash_ids": ids, "think_time": 0.5}
    return usual | more


def session(name: str, *requests: dict[str, Any]) -> str:
    head = {"id": name, "block_size": 64, "hash_id_scope": "local"}
    return json.dumps(head | {"requests": list(requests)})


def test_weka_sessions_have_hash_ids_of_their_own(tmp_path: Path, write: Write) -> None:
    write(session("a", weka(0, 130, [1, 2]), weka(9, 200, [1, 2, 3])), "t-1.json")
    write(session("b", weka(0, 130, [1, 2])), "t-2.json")
    trace = load(tmp_path / "t-*.json")
    by_id = {request.request_id: request for request in trace}
    assert [request.session_id for request in by_id.values()] == ["a", "b", "a"]
    assert by_id[1].parent_id == 0
    assert by_id[1].think_time_s == 0.5
    assert by_id[0].prompt[:2] == by_id[1].prompt[:2] == ((1, 64), (2, 64))
    assert by_id[0].prompt[2] == ("rest:0", 2)
    assert not set(by_id[0].prompt) & set(by_id[2].prompt)
    assert any("no common time" in warning for warning in trace.source.warnings)


def test_weka_subagents_hang_on_the_request_before_and_hold_up_the_next(write: Write) -> None:
    nested = [weka(2, 64, [5], api_time=9.0), weka(12, 64, [6], api_time=1.0)]
    short = [weka(2, 64, [8], api_time=1.0)]
    requests = [
        weka(0, 64, [1], api_time=1.0),
        {"t": 1.5, "type": "subagent", "requests": nested},
        {"t": 1.5, "type": "subagent", "requests": short},
        weka(20, 128, [1, 2]),
    ]
    trace = load(write(session("a", *requests), "t.json"))
    parents = {request.request_id: request.parent_id for request in trace}
    assert parents == {0: None, 1: 0, 2: 1, 3: 0, 4: 2}


def test_llmservingsim_tokens_share_by_blocks(write: Write) -> None:
    shared = list(range(32))
    rows = [
        {
            "input_toks": 40,
            "output_toks": 3,
            "arrival_time_ns": 0,
            "input_tok_ids": [*shared, *[1] * 8],
        },
        {
            "input_toks": 40,
            "output_toks": 3,
            "arrival_time_ns": 2e9,
            "input_tok_ids": [*shared, *[2] * 8],
        },
        {"input_toks": 5, "output_toks": 3, "arrival_time_ns": 3e9},
    ]
    trace = load(write(lines(*rows)))
    one, other, third = (request.prompt for request in trace)
    assert one[:2] == other[:2]
    assert one[2] != other[2]
    assert [tokens for _, tokens in one] == [16, 16, 8]
    assert third == ()
    assert trace.arrival_s.tolist() == [0.0, 2.0, 3.0]


def test_llmservingsim_sessions_pause_for_tools(write: Write) -> None:
    parts = [
        {"input_toks": 5, "output_toks": 1, "tool_duration_ns": 2_000_000_000},
        {"input_toks": 9, "output_toks": 2},
    ]
    rows = [{"session_id": "x", "arrival_time_ns": 1e9, "sub_requests": parts}]
    trace = load(write(lines(*rows)))
    assert [(r.parent_id, r.think_time_s) for r in trace] == [(None, None), (0, 2.0)]
    assert trace.arrival_s.tolist() == [0.0, 2.0]


def test_files_of_a_pattern_are_one_trace(tmp_path: Path, write: Write) -> None:
    header = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    write(header + "2024-05-12 00:00:01+00:00,3,1\n", "day-2.csv")
    write(header + "2024-05-11 00:00:00+00:00,1,1\n2024-05-11 00:00:09+00:00,2,1\n", "day-1.csv")
    trace = load(tmp_path / "day-*.csv")
    assert trace.num_prompt_tokens.tolist() == [1, 2, 3]
    assert trace.arrival_s.tolist() == [0.0, 9.0, 86_401.0]
    assert trace.source.num_rows_read == 3
    with pytest.raises(TraceError, match=r"night-\*\.csv: no file"):
        load(tmp_path / "night-*.csv")


@pytest.mark.parametrize("name", ["mooncake", "headway"])
def test_a_mixed_up_unit_is_suspected_and_said(write: Write, name: str) -> None:
    if name == "mooncake":  # seconds where milliseconds belong
        path = write(lines(*(mooncake(3 * i, 5, None) for i in range(2_500))))
        words = ["2.08 h if s", "7.5 s of trace if ms"]
    else:  # milliseconds where seconds belong
        rows = "".join(f"{3000 * i},1,1\n" for i in range(2_500))
        path = write("arrival_s,num_prompt_tokens,num_output_tokens\n" + rows)
        words = ["86.8 days of trace if s", "2.08 h if ms"]
    (warning,) = load(path).source.warnings
    for word in [*words, "set time_unit"]:
        assert word in warning
    right = {"mooncake": "s", "headway": "ms"}[name]
    again = load(path, time_unit=right)
    assert again.source.warnings == ()
    assert again.duration_s == pytest.approx(3 * 2_499)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"time_unit": "m"}, "time unit 'm' is wrong"),
        ({"time_unit": "ms"}, "time_unit: azure has clock times"),
        ({"block_size": 16}, "block_size: azure has no hash ids"),
        ({"block_size": 0}, "block_size: 0 is wrong"),
        ({"on_bad_row": "ignore"}, "on_bad_row: 'ignore' is wrong"),
        ({"window_s": (5.0, 5.0)}, "window: "),
    ],
)
def test_wrong_options_are_refused(write: Write, options: Any, words: str) -> None:
    path = write("TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-11 00:00:00+00:00,1,1\n")
    with pytest.raises(TraceError, match=words):
        load(path, **options)


def test_bad_rows_are_skipped_and_counted_by_reason(write: Write) -> None:
    good = "1,2,3\n"
    rows = [
        good,
        "x,2,3\n",
        good,
        "1,-2,3\n",
        "1,2\n",
        good,
        "1,2,-9\n",
        "1,x,3\n",
        good,
        "1,0,3\n",
    ]
    path = write("arrival_s,num_prompt_tokens,num_output_tokens\n" + "".join(rows))
    trace = load(path, on_bad_row="skip")
    assert trace.source.num_rows_read == len(rows)
    assert trace.source.dropped == {
        "zero prompt tokens": 1,
        "bad arrival_s": 1,
        "bad num_prompt_tokens": 2,
        "wrong number of cells": 1,
        "bad num_output_tokens": 1,
    }
    assert len(trace) + sum(trace.source.dropped.values()) == len(rows)
    # ids are row numbers, rows left out counted
    assert trace.request_id.tolist() == [0, 2, 5, 8]
    assert any("line 3, arrival_s: 'x'" in warning for warning in trace.source.warnings)


def test_bad_json_rows_are_skipped(write: Write) -> None:
    text = (
        lines(mooncake(0, 512, [1]))
        + "{broken\n[]\n"
        + lines(mooncake(1, 512, [1, 2]), mooncake(2, 10, [4]), {"timestamp": 3})
    )
    trace = load(write(text), block_size=512, on_bad_row="skip")
    assert trace.request_id.tolist() == [0, 4]
    assert trace.source.dropped == {
        "no JSON": 1,
        "no object": 1,
        "hash_ids do not fit input_length": 1,
        "wrong keys": 1,
    }
    assert trace.source.num_rows_read == 6


def test_a_window_keeps_only_its_rows(write: Write) -> None:
    rows = "".join(f"{time},{time + 1},1\n" for time in range(100))
    path = write("arrival_s,num_prompt_tokens,num_output_tokens\n" + rows)
    trace = load(path, window_s=(10.0, 13.0))
    assert trace.num_prompt_tokens.tolist() == [11, 12, 13]
    assert trace.arrival_s.tolist() == [0.0, 1.0, 2.0]
    assert trace.source.num_rows_read == 100
    assert trace.source.dropped == {"outside the window": 97}


@pytest.mark.parametrize(
    ("name", "format", "num_rows", "dropped"),
    [
        ("traces/mooncake_fast25/conversation_trace.jsonl", "mooncake", 12_031, 0),
        ("traces/mooncake_fast25/synthetic_trace.jsonl", "mooncake", 3_993, 0),
        ("traces/burstgpt/BurstGPT_1_sample.csv", "burstgpt", 54, 3),
        ("traces/burstgpt/BurstGPT_3_sample.csv", "burstgpt", 4, 0),
        ("traces/azure_lmm_2025/sample.csv", "azure", 9, 0),
        ("traces/vidur_processed/splitwise_conv.csv", "vidur", 19_366, 0),
        ("traces/qwen_bailian/sample.jsonl", "qwen", 2, 0),
        ("traces/weka_agentic/*.json", "weka", 93, 0),
        (
            "truth/llmservingsim_bench/workloads/sharegpt-qwen3-32b-300-sps10.compact.jsonl",
            "mooncake",
            300,
            0,
        ),
    ],
)
def test_recorded_files_give_every_row(
    shared_dir: Path, name: str, format: str, num_rows: int, dropped: int
) -> None:
    trace = load(shared_dir / "data" / name)
    assert trace.source.format == format
    assert trace.source.num_rows_read == num_rows
    assert len(trace) == num_rows - dropped


def test_vidur_and_azure_are_the_same_trace(shared_dir: Path) -> None:
    vidur = load(shared_dir / "data/traces/vidur_processed/splitwise_conv.csv")
    azure = load(shared_dir / "data/traces/azure_2023/AzureLLMInferenceTrace_conv.csv")
    assert vidur.num_prompt_tokens.tolist() == azure.num_prompt_tokens.tolist()
    assert vidur.arrival_s == pytest.approx(azure.arrival_s, abs=1e-6)
