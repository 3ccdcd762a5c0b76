"""The quick way of reading CSV gives what the standard library's reader gives."""

from __future__ import annotations

import csv
import io
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traces.csv_batches import PlainBatch, header_and_batches
from traces.errors import TraceError
from traces.files import InputFile

TEXTS = st.text(st.sampled_from('ab1,,\n\n\r" '), max_size=80)


@given(text=TEXTS, size=st.integers(1, 9))
def test_rows_and_lines_are_those_of_the_csv_module(text, size):
    lines = list(io.StringIO("head,er\n" + text, newline="\n"))
    with patch("traces.csv_batches.ROWS_PER_CHUNK", size):
        assert outcome(lambda: ours(lines)) == outcome(lambda: theirs(lines))


def ours(lines):
    _, header, batches = header_and_batches("t.csv", iter(lines), 10)
    assert header == ["head", "er"]
    rows = []
    for batch in batches:
        assert batch.first_row == 10 + len(rows)
        assert batch.widths() == [len(batch.row(i)) for i in range(len(batch))]
        rows += [(line, batch.row(i)) for i, line in enumerate(batch.lines)]
    return rows


def theirs(lines):
    reader = csv.reader(iter(lines), strict=True)
    next(reader)
    return [(reader.line_num, row) for row in reader if row]


def outcome(read):
    try:
        return read()
    except (csv.Error, TraceError):
        return "refused"


def test_of_two_faults_the_first_is_named(tmp_path):
    path = tmp_path / "two.csv"
    path.write_bytes(b'a,b\n1,2\n1,"2"x\n2,2\n\xff,2\n')
    with InputFile(path) as file:
        _, _, batches = header_and_batches("two.csv", file.lines(), 0)
        with pytest.raises(TraceError, match=r"line 3: this is no CSV row"):
            list(batches)
    path.write_bytes(b"a,b\n1,2\n\xff,2\n")
    with InputFile(path) as file:
        _, _, batches = header_and_batches("two.csv", file.lines(), 0)
        assert len(next(batches)) == 1
        with pytest.raises(TraceError, match=r"line 3: byte"):
            next(batches)


@given(rows=st.lists(st.lists(st.text("ab1 ", min_size=1), min_size=3, max_size=3), min_size=1))
def test_unquoted_rows_are_cut_into_columns_without_the_reader(rows):
    lines = ["x,y,z\n", *(",".join(row) + "\n" for row in rows)]
    _, _, batches = header_and_batches("t.csv", iter(lines), 0)
    (batch,) = batches
    assert isinstance(batch, PlainBatch)
    assert [list(column) for column in batch.columns(3)] == [
        list(c) for c in zip(*rows, strict=True)
    ]
    half = batch[1:]
    assert (half.first_row, list(half.lines)) == (1, list(range(3, len(rows) + 2)))


@given(
    data=st.binary(max_size=200).map(lambda b: b"a" + b.replace(b"\0", b"")),
    size=st.integers(1, 50),
)
def test_lines_do_not_depend_on_blocks(tmp_path_factory, data, size):
    path = tmp_path_factory.mktemp("lines") / "t.csv"
    path.write_bytes(data)
    with patch("traces.files._BLOCK_BYTES", size), InputFile(path) as file:
        got = []
        try:
            got += file.lines()
        except TraceError as error:
            number = int(str(error).split("line ")[1].split(":")[0].split(",")[0])
            whole = io.BytesIO(data).readlines()
            assert len(got) == number - 1
            assert [line.encode() for line in got] == whole[: number - 1]
            try:
                whole[number - 1].decode()
            except UnicodeDecodeError:
                return
            raise
        assert "".join(got).encode() == data
        assert [line.encode() for line in got] == io.BytesIO(data).readlines()
