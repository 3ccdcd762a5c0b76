"""Every format that can be written gives back what was put in, or names what it can't hold."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from traces import RequestSpec, Trace, TraceError, load, save
from traces.formats.registry import FORMATS
from traces.writer import WRITERS

PLAIN = Trace.from_columns([0.0, 0.5, 2.0], [10, 600, 1_030], [1, 2, 3])
BLOCKS = Trace.from_columns(
    [0.0, 0.5, 2.0],
    [10, 600, 1_030],
    [1, 2, 3],
    prompts=[((4, 10),), ((1, 512), (2, 88)), ((1, 512), (2, 512), (3, 6))],
)
FULL = Trace.from_requests(
    [
        RequestSpec(3, 0.0, 10, 4, (("a", 10),), -1, "s", None, None, "t", 2),
        RequestSpec(5, 1.5, 20, 4, (("a", 10), ("out:3", 4), ("b", 6)), 0, "s", 3, 0.25, "t", 2),
        RequestSpec(9, 1.5, 7, 1),
    ]
)
ODD_TEXTS = Trace.from_requests(
    [RequestSpec(i, 0.0, 1, 1, tenant=text) for i, text in enumerate(("\0", "a\rb", "c"))]
)
TEXT = st.text(st.characters(codec="utf-8"), max_size=4)


def test_every_writer_has_a_reader() -> None:
    assert set(WRITERS) <= {each.name for each in FORMATS}


@pytest.mark.parametrize("name", WRITERS)
def test_plain_traces_round_trip_in_every_format(tmp_path: Path, name: str) -> None:
    assert save(PLAIN, tmp_path / "t", format=name) == ()
    again = load(tmp_path / "t")
    assert again.source.format == name
    assert again.content_sha256 == PLAIN.content_sha256


@pytest.mark.parametrize("name", ["headway-jsonl", "headway-parquet", "mooncake"])
def test_blocks_round_trip(tmp_path: Path, name: str) -> None:
    assert save(BLOCKS, tmp_path / "t", format=name) == ()
    assert load(tmp_path / "t").content_sha256 == BLOCKS.content_sha256


@pytest.mark.parametrize("name", ["headway-jsonl", "headway-parquet"])
def test_sessions_tenants_and_adapters_round_trip(tmp_path: Path, name: str) -> None:
    assert save(FULL, tmp_path / "t", format=name) == ()
    again = load(tmp_path / "t")
    assert list(again) == list(FULL)
    assert again.content_sha256 == FULL.content_sha256
    save(FULL.with_columns("no prompts", prompts=None), tmp_path / "c.csv")
    assert list(load(tmp_path / "c.csv")) == list(FULL.with_columns("", prompts=None))


@pytest.mark.parametrize(
    ("trace", "name", "words"),
    [
        (BLOCKS, "headway-csv", "prompt segments"),
        (BLOCKS, "azure", "prompt segments"),
        (BLOCKS, "vidur", "prompt segments"),
        (ODD_TEXTS, "headway-csv", "texts with zero characters or carriage returns"),
        (FULL, "mooncake", "sessions, parents, think times, tenants, LoRA adapters, priorities"),
        (FULL, "mooncake", "request ids"),
        (FULL, "mooncake", "not blocks of 512 tokens"),
        (FULL, "burstgpt", "tenants"),
        (PLAIN.with_arrivals([0.0, 1 / 3, 2.0], ""), "azure", "finer than 100 ns"),
        (PLAIN.with_arrivals([1.0, 2.0, 2.0], ""), "vidur", "before the first arrival"),
        (PLAIN.with_arrivals([0.0, 0.1 + 0.2, 6.0], ""), "azure", "finer than 100 ns"),
    ],
)
def test_what_would_be_lost_is_named(tmp_path: Path, trace: Trace, name: str, words: str) -> None:
    with pytest.raises(TraceError, match=f"{name} can't hold .*{words}"):
        save(trace, tmp_path / "t", format=name)
    assert list(tmp_path.iterdir()) == []
    lost = save(trace, tmp_path / "t", format=name, allow_loss=True)
    assert words.split(", ", maxsplit=1)[0].rsplit(maxsplit=1)[-1] in " ".join(lost)
    assert len(load(tmp_path / "t")) == len(trace)


def test_allowed_losses_keep_sharing_by_blocks(tmp_path: Path) -> None:
    prompts = [(("sys", 600), (f"own-{i}", 500)) for i in range(2)]
    trace = Trace.from_columns([0, 1], [1_100, 1_100], [1, 1], prompts=prompts)
    save(trace, tmp_path / "t", format="mooncake", allow_loss=True)
    one, other = (request.prompt for request in load(tmp_path / "t"))
    assert one[0] == other[0] == (0, 512)
    assert [tokens for _, tokens in one] == [512, 512, 76]
    assert not set(one[1:]) & set(other[1:])


def test_unknown_format_offers_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="can't write format 'moncake'; did you mean 'mooncake'"):
        save(PLAIN, tmp_path / "t", format="moncake")


@st.composite
def session_traces(draw: st.DrawFn) -> Trace:
    rows: list[RequestSpec] = []
    for number in range(draw(st.integers(1, 6))):
        parents = [None, *(row.request_id for row in rows)]
        parent = draw(st.sampled_from(parents))
        rows.append(
            RequestSpec(
                number * 2,
                float(number),
                draw(st.integers(1, 99)),
                draw(st.integers(1, 99)),
                session_id=draw(st.none() | TEXT),
                parent_id=parent,
                think_time_s=None if parent is None else draw(st.none() | st.floats(0, 1e6)),
                tenant=draw(st.none() | TEXT),
                lora_id=draw(st.integers(0, 3)),
            )
        )
    return Trace.from_requests(rows)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    trace=session_traces(),
    name=st.sampled_from(["headway-csv", "headway-jsonl", "headway-parquet"]),
)
def test_any_session_round_trips_or_is_refused(tmp_path: Path, trace: Trace, name: str) -> None:
    try:
        save(trace, tmp_path / "t", format=name, overwrite=True)
    except TraceError as error:
        assert "empty" in str(error) or "zero characters" in str(error)
        return
    again = load(tmp_path / "t", format=name)
    assert list(again) == list(trace)


def test_recorded_traces_come_through_other_formats(shared_dir: Path, tmp_path: Path) -> None:
    folder = shared_dir / "data/traces"
    pairs: list[tuple[str, list[Any]]] = [
        ("azure_2023/AzureLLMInferenceTrace_code.csv", ["azure", "vidur"]),
        ("mooncake_fast25/synthetic_trace.jsonl", ["mooncake", "headway-jsonl", "headway-parquet"]),
        ("weka_agentic/*.json", ["headway-jsonl"]),
        ("qwen_bailian/sample.jsonl", ["headway-jsonl", "headway-parquet"]),
    ]
    for name, formats in pairs:
        trace = load(folder / name)
        for format in formats:
            save(trace, tmp_path / "t", format=format, overwrite=True)
            again = load(tmp_path / "t")
            assert again.source.format == format
            assert again.content_sha256 == trace.content_sha256
            assert np.array_equal(again.arrival_s, trace.arrival_s)
