"""What loading does whatever the format: one contract, run over every registered format."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from traces import Trace, TraceError, load, save
from traces.files import Head
from traces.formats.registry import FORMATS, detect, format_named

# Rows that every format can hold: (seconds, prompt, output), out of order, some with zeros.
ROWS = [
    (10.0, 7, 3),
    (12.5, 100, 1),
    (12.5, 9, 2),
    (11.0, 8, 0),
    (10.5, 0, 4),
    (13.25, 0, 0),
    (11.75, 5, 5),
]


def _write_azure(path: Path, rows: list[tuple[float, int, int]]) -> None:
    lines = ["TIMESTAMP,ContextTokens,GeneratedTokens"]
    lines += [f"2023-11-16 18:15:{time:010.7f},{prompt},{out}" for time, prompt, out in rows]
    path.write_text("\r\n".join(lines))


def _write_csv(path: Path, rows: list[tuple[float, int, int]]) -> None:
    lines = ["arrival_s,num_prompt_tokens,num_output_tokens"]
    lines += [f"{time},{prompt},{out}" for time, prompt, out in rows]
    path.write_text("\n".join(lines) + "\n")


def _write_jsonl(path: Path, rows: list[tuple[float, int, int]]) -> None:
    template = '{{"arrival_s": {}, "num_prompt_tokens": {}, "num_output_tokens": {}}}\n'
    path.write_text("".join(template.format(*row) for row in rows))


def _write_parquet(path: Path, rows: list[tuple[float, int, int]]) -> None:
    names = ["arrival_s", "num_prompt_tokens", "num_output_tokens"]
    pq.write_table(
        pa.table([list(column) for column in zip(*rows, strict=True)], names=names), path
    )


def _csv_of(*names: str) -> Callable[[Path, list[tuple[float, int, int]]], None]:
    def write(path: Path, rows: list[tuple[float, int, int]]) -> None:
        lines = [",".join(names), *(f"{time},{prompt},{out}" for time, prompt, out in rows)]
        path.write_text("\n".join(lines) + "\n")

    return write


def _jsonl_of(
    make: Callable[[float, int, int], dict[str, Any]],
) -> Callable[[Path, list[tuple[float, int, int]]], None]:
    def write(path: Path, rows: list[tuple[float, int, int]]) -> None:
        path.write_text("".join(json.dumps(make(*row)) + "\n" for row in rows))

    return write


def _document_of(
    make: Callable[[list[tuple[float, int, int]]], dict[str, Any]],
) -> Callable[[Path, list[tuple[float, int, int]]], None]:
    return lambda path, rows: path.write_text(json.dumps(make(rows)))  # type: ignore[return-value]


def _ids(prompt: int, size: int) -> list[int]:
    return list(range(-(-prompt // size)))


def _aiperf(time: float, prompt: int, out: int) -> dict[str, Any]:
    metrics = {"input_sequence_length": prompt, "output_sequence_length": out}
    return {
        "metadata": {"request_start_ns": int(time * 1e9), "benchmark_phase": "profiling"},
        "metrics": {name: {"value": value, "unit": "tokens"} for name, value in metrics.items()},
        "error": None,
    }


def _vllm_bench(rows: list[tuple[float, int, int]]) -> dict[str, Any]:
    times, prompts, outs = (list(column) for column in zip(*rows, strict=True))
    return {
        "completed": len(rows),
        "request_throughput": 1.0,
        "input_lens": prompts,
        "output_lens": outs,
        "ttfts": [0.1] * len(rows),
        "itls": [[0.01] * max(out - 1, 0) for out in outs],
        "start_times": times,
        "errors": [""] * len(rows),
    }


def _guidellm(rows: list[tuple[float, int, int]]) -> dict[str, Any]:
    requests = [
        {"request_start_time": time, "prompt_tokens": prompt, "output_tokens": out}
        for time, prompt, out in rows
    ]
    groups = {"successful": requests, "errored": [], "incomplete": []}
    return {"metadata": {"version": 1}, "benchmarks": [{"requests": groups}]}


WRITERS: dict[str, Callable[[Path, list[tuple[float, int, int]]], None]] = {
    "azure": _write_azure,
    "burstgpt": _csv_of("Timestamp", "Request tokens", "Response tokens"),
    "headway-csv": _write_csv,
    "headway-jsonl": _write_jsonl,
    "headway-parquet": _write_parquet,
    "mooncake": _jsonl_of(
        lambda time, prompt, out: {
            "timestamp": time * 1000,
            "input_length": prompt,
            "output_length": out,
            "hash_ids": _ids(prompt, 512),
        }
    ),
    "qwen": _jsonl_of(
        lambda time, prompt, out: {
            "chat_id": int(time * 100) * 1000 + prompt,
            "parent_chat_id": -1,
            "timestamp": time,
            "input_length": prompt,
            "output_length": out,
            "type": "text",
            "turn": 1,
            "hash_ids": _ids(prompt, 16),
        }
    ),
    "weka": _document_of(
        lambda rows: {
            "id": "s",
            "block_size": 64,
            "hash_id_scope": "local",
            "requests": [{"t": t, "in": p, "out": o, "hash_ids": []} for t, p, o in rows],
        }
    ),
    "vidur": _csv_of("arrived_at", "num_prefill_tokens", "num_decode_tokens"),
    "splitwise": _csv_of("arrival_timestamp", "prompt_size", "token_size"),
    "llmservingsim": _jsonl_of(
        lambda time, prompt, out: {
            "input_toks": prompt,
            "output_toks": out,
            "arrival_time_ns": int(time * 1e9),
        }
    ),
    "llmservingsim-agentic": _jsonl_of(
        lambda time, prompt, out: {
            "session_id": f"{time}-{prompt}",
            "arrival_time_ns": int(time * 1e9),
            "sub_requests": [{"input_toks": prompt, "output_toks": out}],
        }
    ),
    "llmservingsim-bench": _jsonl_of(
        lambda time, prompt, out: {
            "input_toks": prompt,
            "output_toks": out,
            "arrival_time": time,
            "queued_ts": time,
            "first_token_ts": time + 0.1,
            "last_token_ts": time + 0.2,
        }
    ),
    "vllm-bench": _document_of(_vllm_bench),
    "aiperf": _jsonl_of(_aiperf),
    "guidellm": _document_of(_guidellm),
}
# guidellm's requests are put in the order of sending; a WEKA session is a chain, with a note
SORTED = {"guidellm"}
NOTED = {"weka"}

each_format = pytest.mark.parametrize("name", [each.name for each in FORMATS])


@each_format
def test_every_format_has_a_row_in_this_contract(name: str) -> None:
    assert name in WRITERS
    assert format_named(name).name == name
    assert format_named(name).summary


@each_format
def test_contract(tmp_path: Path, name: str) -> None:
    path = tmp_path / "trace"
    WRITERS[name](path, ROWS)
    trace = load(path)
    assert trace.source.format == name
    assert trace.source.num_rows_read == len(ROWS)
    assert trace.source.dropped == {"zero prompt tokens": 2, "zero output tokens": 1}
    assert len(trace) + sum(trace.source.dropped.values()) == len(ROWS)
    if name not in SORTED:
        assert trace.request_id.tolist() == [0, 6, 1, 2]
    assert trace.arrival_s.tolist() == [0.0, 1.75, 2.5, 2.5]
    assert trace.num_prompt_tokens.tolist() == [7, 5, 100, 9]
    assert trace.num_output_tokens.tolist() == [3, 5, 1, 2]
    assert trace.source.start is not None
    assert "10" in trace.source.start
    orders = [warning for warning in trace.source.warnings if "earlier time" in warning]
    if name not in SORTED:
        (warning,) = orders
        assert "3 of 7 rows" in warning
        assert str(path) in warning
    assert load(path, format=name).content_sha256 == trace.content_sha256


@each_format
def test_rows_in_order_give_no_warning(tmp_path: Path, name: str) -> None:
    path = tmp_path / "trace"
    WRITERS[name](path, [(1.0, 1, 1), (1.0, 2, 1), (3.0, 3, 1)])
    trace = load(path)
    assert trace.source.dropped == {}
    assert len(trace.source.warnings) == (name in NOTED)
    assert trace.num_prompt_tokens.tolist() == [1, 2, 3]


@each_format
def test_only_zero_rows_is_an_error(tmp_path: Path, name: str) -> None:
    path = tmp_path / "trace"
    WRITERS[name](path, [(1.0, 0, 1), (1.0, 2, 0)])
    with pytest.raises(TraceError, match="no usable request among 2 rows"):
        load(path)


@each_format
def test_detection_claims_only_its_own(tmp_path: Path, name: str) -> None:
    path = tmp_path / "trace"
    WRITERS[name](path, ROWS)
    head = Head("trace", path.read_bytes())
    assert [each.name for each in FORMATS if each.score(head) == 1.0] == [name]
    assert detect(head).name == name


@each_format
def test_many_chunks_are_one_trace(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "trace"
    WRITERS[name](path, ROWS)
    whole = load(path)
    for module in ("rows", "formats.headway_parquet"):
        monkeypatch.setattr(f"traces.{module}.ROWS_PER_CHUNK", 2)
    assert load(path).content_sha256 == whole.content_sha256
    assert load(path).source == whole.source


def test_times_can_be_kept_as_written(write: Callable[..., Path]) -> None:
    path = write("arrival_s,num_prompt_tokens,num_output_tokens\n5.5,1,1\n")
    kept = load(path, rebase=False)
    assert (kept.arrival_s.tolist(), kept.source.start) == ([5.5], None)
    assert load(path).source.start == "5.5 s"


def test_own_ids_and_priorities_are_kept(write: Callable[..., Path]) -> None:
    text = (
        "request_id,priority,arrival_s,num_prompt_tokens,num_output_tokens\n7,-2,0,1,1\n3,1,0,2,1\n"
    )
    trace = load(write(text))
    assert trace.request_id.tolist() == [3, 7]
    assert trace.priority.tolist() == [1, -2]


def test_blank_lines_are_no_rows(write: Callable[..., Path]) -> None:
    text = "\n\narrival_s,num_prompt_tokens,num_output_tokens\n0,1,1\n\n1,x,1\n\n"
    with pytest.raises(TraceError, match="line 6, num_prompt_tokens: 'x'"):
        load(write(text))
    assert len(load(write(text.replace("x", "2")))) == 2


def test_unknown_format_name_offers_the_nearest(write: Callable[..., Path]) -> None:
    path = write("arrival_s,num_prompt_tokens,num_output_tokens\n0,1,1\n")
    with pytest.raises(TraceError, match="'azur'; did you mean 'azure'"):
        load(path, format="azur")
    with pytest.raises(TraceError, match="known are auto, azure, burstgpt"):
        load(path, format="qqq")


def test_loading_reads_what_saving_wrote(tmp_path: Path) -> None:
    trace = Trace.from_columns([0.0, 0.1 + 0.2], [5, 6], [7, 8])
    save(trace, tmp_path / "t.csv")
    assert load(tmp_path / "t.csv").content_sha256 == trace.content_sha256


@each_format
@pytest.mark.parametrize("packing", ["gzip", "zstd"])
def test_packed_files_load_alike(tmp_path: Path, name: str, packing: str) -> None:
    path = tmp_path / "trace"
    WRITERS[name](path, ROWS)
    packed = tmp_path / "trace.packed"
    if packing == "gzip":
        packed.write_bytes(gzip.compress(path.read_bytes()))
    else:
        with pa.CompressedOutputStream(str(packed), "zstd") as stream:
            stream.write(path.read_bytes())
    if name == "headway-parquet":
        with pytest.raises(TraceError, match=r"packed.* no|Parquet"):
            load(packed)
        return
    assert load(packed).content_sha256 == load(path).content_sha256
    assert load(packed).source.sha256 != load(path).source.sha256


@each_format
def test_what_was_guessed_is_said(tmp_path: Path, name: str) -> None:
    path = tmp_path / "trace"
    WRITERS[name](path, ROWS)
    reading = load(path).source.reading
    assert reading is not None
    assert f"read as {name}, " in reading
    assert "guessed from its content" in reading
