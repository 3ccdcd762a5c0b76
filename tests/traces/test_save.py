"""Saving and loading again gives the same trace, or saving says why it can't."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from traces import Prompt, RequestSpec, Trace, TraceError, load, save

INT64 = st.integers(-(2**63), 2**63 - 1)
LENGTHS = st.integers(1, 100_000_000)
TEXT_IDS = st.text(max_size=8)


def prompts(ids: st.SearchStrategy[int | str]) -> st.SearchStrategy[Prompt]:
    segment = st.tuples(ids, st.integers(1, 1_000_000))
    return st.lists(segment, max_size=4).map(tuple)


@st.composite
def traces(draw: st.DrawFn, prompt: st.SearchStrategy[Prompt]) -> Trace:
    ids = draw(st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=8, unique=True))
    requests = []
    for request_id in ids:
        segments = draw(prompt)
        requests.append(
            RequestSpec(
                request_id=request_id,
                arrival_s=draw(st.floats(0, 1e300)),
                num_prompt_tokens=sum(length for _, length in segments) or draw(LENGTHS),
                num_output_tokens=draw(LENGTHS),
                prompt=segments,
                priority=draw(INT64),
            )
        )
    return Trace.from_requests(requests)


def assert_round_trip(trace: Trace, path: Path) -> None:
    save(trace, path, overwrite=True)
    again = load(path, rebase=False)
    assert again.content_sha256 == trace.content_sha256
    assert list(again) == list(trace)
    assert again.source.num_rows_read == len(trace)


few = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@few
@given(trace=traces(st.just(())))
def test_csv_round_trip(tmp_path: Path, trace: Trace) -> None:
    assert_round_trip(trace, tmp_path / "t.csv")


@few
@given(trace=traces(prompts(INT64 | TEXT_IDS)))
def test_jsonl_round_trip(tmp_path: Path, trace: Trace) -> None:
    assert_round_trip(trace, tmp_path / "t.jsonl")


@few
@given(trace=traces(prompts(INT64)) | traces(prompts(TEXT_IDS)))
def test_parquet_round_trip(tmp_path: Path, trace: Trace) -> None:
    assert_round_trip(trace, tmp_path / "t.parquet")


TRACE = Trace.from_columns([0.0, 0.1], [3, 4], [5, 6])
WITH_PROMPTS = Trace.from_columns([0.0, 0.1], [3, 4], [5, 6], prompts=[(("a", 3),), ((7, 4),)])


def test_defaults_are_left_out(tmp_path: Path) -> None:
    save(TRACE, tmp_path / "t.csv")
    text = (tmp_path / "t.csv").read_bytes().decode()
    assert text == "arrival_s,num_prompt_tokens,num_output_tokens\n0.0,3,5\n0.1,4,6\n"


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_equal_traces_give_equal_bytes_and_leave_nothing_behind(
    tmp_path: Path, suffix: str
) -> None:
    save(TRACE, tmp_path / f"a{suffix}")
    save(TRACE, tmp_path / f"b{suffix}")
    assert (tmp_path / f"a{suffix}").read_bytes() == (tmp_path / f"b{suffix}").read_bytes()
    assert len(list(tmp_path.iterdir())) == 2


def test_existing_file_is_not_overwritten_in_silence(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("mine")
    with pytest.raises(TraceError, match=r"t\.csv: the file exists"):
        save(TRACE, path)
    assert path.read_text() == "mine"
    save(TRACE, path, overwrite=True)
    assert len(load(path)) == 2


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("t.csv", "headway-csv can't hold prompt segments"),
        ("t.parquet", "text and integer segment ids"),
    ],
)
def test_what_would_be_lost_is_refused(tmp_path: Path, name: str, words: str) -> None:
    with pytest.raises(TraceError, match=words):
        save(WITH_PROMPTS, tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_unknown_suffix(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"'\.txt'; the suffixes are \.csv, \.jsonl and \.parquet"):
        save(TRACE, tmp_path / "t.txt")


@pytest.mark.parametrize("name", ["absent/t.csv", "absent/t.parquet"])
def test_unwritable_place(tmp_path: Path, name: str) -> None:
    with pytest.raises(TraceError, match="can't be written"):
        save(TRACE, tmp_path / name)
