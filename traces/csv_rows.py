"""CSV files as columns of cells, a chunk at a time, with the line of every row."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from traces.arrays import IntArray
from traces.cells import CellColumn
from traces.columns import ColumnNames
from traces.errors import bad_place, bad_row, shown
from traces.files import Head, InputFile
from traces.formats.base import Chunk, Part
from traces.rows import batches


@dataclass(frozen=True, slots=True)
class _Batch:
    """Some rows of a file, the number of the first, and the line of each."""

    first_row: int
    lines: list[int]
    rows: list[list[str]]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, part: slice) -> _Batch:
        first, _, _ = part.indices(len(self))
        return _Batch(self.first_row + first, self.lines[part], self.rows[part])


@dataclass(frozen=True, slots=True)
class CsvChunk:
    """Rows of a CSV file by column name."""

    rows: IntArray
    lines: list[int]
    columns: dict[str, CellColumn]

    @property
    def places(self) -> IntArray:
        """The line of each row."""
        return np.array(self.lines, dtype=np.int64)

    def __contains__(self, name: str) -> bool:
        return name in self.columns

    def __getitem__(self, name: str) -> CellColumn:
        return self.columns[name]


def header_of(head: Head) -> list[str]:
    """The names in a file's first line, for detection; none if it is JSON."""
    if head.first_line.startswith(("{", "[")):
        return []
    return [name.strip('"') for name in head.first_line.split(",")]


def read_csv(
    file: InputFile, names: ColumnNames, part: Part, typed: Callable[[CsvChunk], Chunk]
) -> Iterator[Chunk]:
    """Chunks of the rows below the header; blank lines are no rows.

    Raises:
        TraceError: names that `names` refuses, no rows, or a bad row where those are errors.
    """
    reader = csv.reader(file.lines(), strict=True)
    numbered = _numbered_rows(file.path, reader)
    line, header = next(numbered)
    names.check(file.path, f"line {line}", "column", header)

    def parse(batch: _Batch) -> Chunk:
        _check_widths(file.path, header, batch)
        return typed(_chunk(file.path, header, batch))

    found_rows = False
    for batch in _batches(numbered, part.first_row):
        found_rows = True
        yield from part.bad_rows.parsed(batch, parse)
    if not found_rows:
        what = "the file ends after its header; a trace has at least one request"
        raise bad_place(file.path, f"line {line}", what)


def _numbered_rows(path: str, reader: Any) -> Iterator[tuple[int, list[str]]]:
    try:
        for row in reader:
            if row:
                yield reader.line_num, row
    except csv.Error as error:
        what = f"this is no CSV row ({error}); quotes must be closed and cells short"
        raise bad_place(path, f"line {reader.line_num}", what) from None


def _batches(numbered: Iterator[tuple[int, list[str]]], first_row: int) -> Iterator[_Batch]:
    for some in batches(numbered):
        lines, rows = zip(*some, strict=True)
        yield _Batch(first_row, list(lines), list(rows))
        first_row += len(rows)


def _check_widths(path: str, header: list[str], batch: _Batch) -> None:
    if set(map(len, batch.rows)) == {len(header)}:
        return
    for line, row in zip(batch.lines, batch.rows, strict=True):
        if len(row) == len(header):
            continue
        what = f"the row has {len(row)} cells, but the header has {len(header)}"
        if len(row) < len(header):
            what = f"{header[len(row)]} is missing: {what}"
        else:
            what = f"{shown(row[len(header)])} belongs to no column: {what}"
        raise bad_row(path, f"line {line}", what, "wrong number of cells")


def _chunk(path: str, header: list[str], batch: _Batch) -> CsvChunk:
    columns = zip(*batch.rows, strict=True)
    return CsvChunk(
        np.arange(batch.first_row, batch.first_row + len(batch)),
        batch.lines,
        {
            name: CellColumn(path, name, batch.lines, cells)
            for name, cells in zip(header, columns, strict=True)
        },
    )
