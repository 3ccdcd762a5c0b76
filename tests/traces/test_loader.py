"""What loading does whatever the format: one contract, run over every registered format."""

from collections.abc import Callable
from pathlib import Path

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


WRITERS: dict[str, Callable[[Path, list[tuple[float, int, int]]], None]] = {
    "azure": _write_azure,
    "headway-csv": _write_csv,
    "headway-jsonl": _write_jsonl,
    "headway-parquet": _write_parquet,
}

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
    assert trace.request_id.tolist() == [0, 6, 1, 2]
    assert trace.arrival_s.tolist() == [0.0, 1.75, 2.5, 2.5]
    assert trace.num_prompt_tokens.tolist() == [7, 5, 100, 9]
    assert trace.num_output_tokens.tolist() == [3, 5, 1, 2]
    assert trace.source.start is not None
    assert "10" in trace.source.start
    (warning,) = trace.source.warnings
    assert "3 of 7 rows" in warning
    assert str(path) in warning
    assert load(path, format=name).content_sha256 == trace.content_sha256


@each_format
def test_rows_in_order_give_no_warning(tmp_path: Path, name: str) -> None:
    path = tmp_path / "trace"
    WRITERS[name](path, [(1.0, 1, 1), (1.0, 2, 1), (3.0, 3, 1)])
    trace = load(path)
    assert (trace.source.warnings, trace.source.dropped) == ((), {})
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
    for module in ("csv_rows", "formats.headway_jsonl", "formats.headway_parquet"):
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
    with pytest.raises(TraceError, match="known are auto, azure"):
        load(path, format="qqq")


def test_loading_reads_what_saving_wrote(tmp_path: Path) -> None:
    trace = Trace.from_columns([0.0, 0.1 + 0.2], [5, 6], [7, 8])
    save(trace, tmp_path / "t.csv")
    assert load(tmp_path / "t.csv").content_sha256 == trace.content_sha256
