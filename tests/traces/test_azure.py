"""The Azure format, against the published facts of the recorded files."""

import hashlib
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traces import TraceError, load
from traces.cells import CellColumn

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"


@pytest.mark.parametrize(
    ("kind", "num_rows", "mean_in", "max_in", "mean_out", "max_out", "first", "last"),
    [
        ("code", 8_819, 2048, 7437, 27.9, 1899, "18:17:03", "19:14:20"),
        ("conv", 19_366, 1155, 14050, 211, 1000, "18:15:46", "19:14:08"),
    ],
)
def test_2023_files_give_every_row(
    shared_dir: Path,
    kind: str,
    num_rows: int,
    mean_in: float,
    max_in: int,
    mean_out: float,
    max_out: int,
    first: str,
    last: str,
) -> None:
    path = shared_dir / f"data/traces/azure_2023/AzureLLMInferenceTrace_{kind}.csv"
    trace = load(path)
    assert len(trace) == trace.source.num_rows_read == num_rows
    assert (trace.source.dropped, trace.source.warnings) == ({}, ())
    assert trace.source.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert trace.num_prompt_tokens.mean() == pytest.approx(mean_in, abs=0.5)
    assert trace.num_output_tokens.mean() == pytest.approx(mean_out, abs=0.15)
    assert trace.num_prompt_tokens.max() == max_in
    assert trace.num_output_tokens.max() == max_out
    assert trace.arrival_s[0] == 0.0
    assert trace.source.start is not None
    assert first in trace.source.start
    clock = "%H:%M:%S"
    span_s = (datetime.strptime(last, clock) - datetime.strptime(first, clock)).seconds
    # both ends are published to the second: the first cut, the last rounded
    assert trace.duration_s == pytest.approx(span_s, abs=1.5)
    assert trace.request_id.tolist() == list(range(num_rows))


def test_2023_rows_are_exact_to_the_tick(shared_dir: Path) -> None:
    path = shared_dir / "data/traces/azure_2023/AzureLLMInferenceTrace_conv.csv"
    trace = load(path)
    # 18:15:50.9951690 - 18:15:46.6805900; the last row has no line end
    assert trace.arrival_s[1] == 4.314579
    assert trace[1].num_prompt_tokens == 396
    assert (trace[-1].num_prompt_tokens, trace[-1].num_output_tokens) == (197, 183)


@pytest.mark.parametrize(("kind", "first", "last"), [("code", 2162, 4725), ("conv", 1452, 2688)])
def test_2024_samples_load(shared_dir: Path, kind: str, first: int, last: int) -> None:
    trace = load(shared_dir / f"data/traces/azure_2024/sample_{kind}.csv")
    assert len(trace) == 10
    assert trace.num_prompt_tokens[[0, -1]].tolist() == [first, last]
    assert trace.duration_s == pytest.approx(7 * 86_400, abs=1.0)


def test_time_styles_mix_in_one_file(write: Callable[..., Path]) -> None:
    rows = [
        "2024-05-12 00:00:00+00:00,5,1",
        "2024-05-12 00:00:00.001163+00:00,6,1",
        "2024-05-12 00:00:00.0011635,7,1",
        "2024-05-12T00:00:01.5Z,8,1",
        "2024-05-12 00:00:02,9,1",
    ]
    trace = load(write("\n".join([HEADER, *rows])))
    assert trace.source.format == "azure"
    assert trace.arrival_s.tolist() == [0.0, 0.001163, 0.0011635, 1.5, 2.0]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("last_end", [True, False])
@pytest.mark.parametrize("bom", ["", "\ufeff"])
def test_line_ends_and_bom_change_nothing(
    write: Callable[..., Path], end: str, last_end: bool, bom: str
) -> None:
    lines = [HEADER, "2023-11-16 18:15:46.6805900,374,44", "2023-11-16 18:15:50.9951690,396,109"]
    text = bom + end.join(lines) + (end if last_end else "")
    trace = load(write(text))
    assert trace.num_output_tokens.tolist() == [44, 109]
    assert trace.arrival_s.tolist() == [0.0, 4.314579]


def test_columns_are_found_by_name(write: Callable[..., Path]) -> None:
    text = "GeneratedTokens,TIMESTAMP,ContextTokens\n44,2023-11-16 18:15:46,374\n"
    trace = load(write(text))
    assert (trace[0].num_prompt_tokens, trace[0].num_output_tokens) == (374, 44)


@given(
    styles=st.lists(
        st.sampled_from(["{}{}", "{}{}+00:00", "{}{}Z", "{} {}", "{}{}x", "{}{}٣"]), max_size=4
    ),
    fractions=st.lists(st.sampled_from(["", ".5", ".123456", ".1234567"]), min_size=1, max_size=6),
)
def test_quick_and_careful_reading_agree(styles: list[str], fractions: list[str]) -> None:
    cells = [
        style.format(f"2024-05-1{i} 00:0{i}:59", fraction)
        for i, (style, fraction) in enumerate(zip(styles * 6, fractions, strict=False))
    ]
    column = CellColumn("t.csv", "TIMESTAMP", range(2, 2 + len(cells)), cells)
    quick = error = careful = None
    try:
        quick = column.clock_ns().tolist() if cells else []
    except TraceError as refusal:
        error = str(refusal)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("traces.cells._uniform_clock_ns", lambda cells: None)
        try:
            careful = column.clock_ns().tolist() if cells else []
        except TraceError as refusal:
            assert str(refusal) == error
            return
    assert quick == careful
