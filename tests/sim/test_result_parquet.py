"""Rows to Parquet in chunks: where a chunk ends leaves no trace, and types come back."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.errors import ResultError
from sim.parquet import RowWriter, iterate_rows, read_rows, write_rows


def table(num_rows):
    index = np.arange(num_rows)
    return {
        "replica": index.astype(np.int32) % 3,
        "time_s": np.where(index % 5, index / 7, np.nan),
        "state": np.array([f"state {i % 4}" for i in index], dtype=np.str_),
        "reason": np.array([f"{i % 2}" for i in index], dtype=object),
    }


def rows_of(columns, start, stop):
    return {name: column[start:stop] for name, column in columns.items()}


@settings(deadline=None, max_examples=30)
@given(cuts=st.lists(st.integers(0, 100), max_size=6))
def test_chunks_of_any_length_give_the_same_bytes(tmp_path_factory, cuts):
    folder = tmp_path_factory.mktemp("rows")
    columns = table(100)
    with RowWriter(folder / "whole.parquet", row_group_rows=16) as writer:
        writer.append(columns)
    edges = [0, *sorted(cuts), 100]
    with RowWriter(folder / "chunks.parquet", row_group_rows=16) as writer:
        for start, stop in pairwise(edges):
            writer.append(rows_of(columns, start, stop))
    assert (folder / "whole.parquet").read_bytes() == (folder / "chunks.parquet").read_bytes()


def test_row_groups_go_to_disk_as_they_fill(tmp_path):
    path = tmp_path / "rows.parquet"
    with RowWriter(path, row_group_rows=1000) as writer:
        writer.append(table(500))
        before = path.stat().st_size
        writer.append(table(4000))
        assert path.stat().st_size > before
    assert [len(chunk["replica"]) for chunk in iterate_rows(path)] == [1000] * 4 + [500]


def test_types_and_never_happened_come_back(tmp_path):
    columns = table(20)
    write_rows(tmp_path / "rows.parquet", columns)
    got = read_rows(tmp_path / "rows.parquet")
    assert got["replica"].dtype == np.int32
    for name, column in columns.items():
        np.testing.assert_array_equal(got[name], column)


def test_a_table_without_rows_keeps_its_columns(tmp_path):
    write_rows(tmp_path / "rows.parquet", table(0))
    got = read_rows(tmp_path / "rows.parquet")
    assert {name: len(column) for name, column in got.items()} == dict.fromkeys(table(0), 0)


def test_columns_of_unequal_length_are_refused(tmp_path):
    with pytest.raises(ResultError, match="unequal lengths"):
        write_rows(tmp_path / "rows.parquet", {"a": np.arange(2), "b": np.arange(3)})


def test_only_the_columns_asked_for_are_read(tmp_path):
    write_rows(tmp_path / "t.parquet", {"a": np.arange(3), "b": np.arange(3.0), "c": np.arange(3)})
    (piece,) = iterate_rows(tmp_path / "t.parquet", ["c", "a"])
    assert list(piece) == ["c", "a"]
    write_rows(tmp_path / "e.parquet", {"a": np.arange(0), "b": np.arange(0.0)})
    (piece,) = iterate_rows(tmp_path / "e.parquet", ["b"])
    assert list(piece) == ["b"]


def test_an_ended_file_takes_no_more_rows(tmp_path):
    with RowWriter(tmp_path / "t.parquet") as writer:
        writer.append({"a": np.arange(3)})
    with pytest.raises(ResultError, match="is ended"):
        writer.append({"a": np.arange(3)})
    assert len(read_rows(tmp_path / "t.parquet")["a"]) == 3
