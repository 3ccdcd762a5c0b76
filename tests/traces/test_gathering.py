"""A file's rows give the same trace whether they are gathered in memory or on disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.traces.test_writers import session_traces
from traces import Trace, TraceError, load, save
from traces.spool import ColumnSpool, is_read_only_file
from traces.writer import WRITERS

PLAIN = sorted({"azure", "vidur", "splitwise", "headway-csv", "headway-jsonl"} & set(WRITERS))


def on_disk(path: Path, name: str) -> Trace:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("traces.gathering._LONG", 0)
        return load(path, format=name)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    times_s=st.lists(st.integers(0, 5_000).map(lambda n: n / 8), min_size=1, max_size=30),
    name=st.sampled_from(PLAIN),
)
def test_plain_traces(tmp_path: Path, times_s: list[float], name: str) -> None:
    times_s = [0.0, *sorted(times_s)]
    lengths = [1 + i % 7 for i in range(len(times_s))]
    save(Trace.from_columns(times_s, lengths, lengths), tmp_path / "t", format=name, overwrite=True)
    there, here = on_disk(tmp_path / "t", name), load(tmp_path / "t", format=name)
    assert there.content_sha256 == here.content_sha256
    assert there.source == here.source
    assert is_read_only_file(there.num_prompt_tokens)


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(trace=session_traces())
def test_sessions(tmp_path: Path, trace: Trace) -> None:
    save(trace, tmp_path / "t", format="headway-jsonl", overwrite=True)
    assert list(on_disk(tmp_path / "t", "headway-jsonl")) == list(trace)


@given(
    st.lists(st.lists(st.integers(-5, 5) | st.floats(-5, 5), max_size=4), min_size=1, max_size=6)
)
def test_a_spool_holds_what_concatenating_gives(pieces: list[list[float]]) -> None:
    arrays = [np.array(piece) for piece in pieces if piece]
    spool = ColumnSpool()
    for array in arrays:
        spool.append(array)
    if arrays:
        column, expected = spool.column(), np.concatenate(arrays)
        assert column.dtype == expected.dtype
        assert column.tolist() == expected.tolist()
        with pytest.raises(ValueError, match=r"read-only|writeable|WRITEABLE"):
            column.setflags(write=True)
            column[0] = 1


def test_no_room_on_the_disk_is_one_sentence(tmp_path: Path) -> None:
    save(Trace.from_columns([0.0, 1.0], [1, 2], [1, 2]), tmp_path / "t.csv")
    with Path("/dev/full").open("wb", buffering=0) as full, pytest.MonkeyPatch.context() as patch:
        patch.setattr("traces.spool.tempfile.TemporaryFile", lambda **_: full)
        with pytest.raises(TraceError, match=r"t\.csv: its rows can't be kept in .*No space left"):
            on_disk(tmp_path / "t.csv", "headway-csv")
