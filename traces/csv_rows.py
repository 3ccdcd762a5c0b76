"""CSV files as columns of cells, a chunk at a time, with the line of every row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from traces.arrays import IntArray
from traces.cells import CellColumn
from traces.columns import ColumnNames
from traces.csv_batches import Batch, header_and_batches
from traces.errors import bad_place, bad_row, shown
from traces.files import Head, InputFile
from traces.formats.base import Chunk, Part


@dataclass(frozen=True, slots=True)
class CsvChunk:
    """Rows of a CSV file by column name."""

    rows: IntArray
    lines: Sequence[int]
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
    line, header, batches = header_and_batches(file.path, file.lines(), part.first_row)
    names.check(file.path, f"line {line}", "column", header)

    def parse(batch: Batch) -> Chunk:
        _check_widths(file.path, header, batch)
        return typed(_chunk(file.path, header, batch))

    found_rows = False
    for batch in batches:
        found_rows = True
        yield from part.bad_rows.parsed(batch, parse)
    if not found_rows:
        what = "the file ends after its header; a trace has at least one request"
        raise bad_place(file.path, f"line {line}", what)


def _check_widths(path: str, header: list[str], batch: Batch) -> None:
    widths = batch.widths()
    index = next((i for i, width in enumerate(widths) if width != len(header)), None)
    if index is None:
        return
    row = batch.row(index)
    what = f"the row has {len(row)} cells, but the header has {len(header)}"
    if len(row) < len(header):
        what = f"{header[len(row)]} is missing: {what}"
    else:
        what = f"{shown(row[len(header)])} belongs to no column: {what}"
    raise bad_row(path, f"line {batch.lines[index]}", what, "wrong number of cells")


def _chunk(path: str, header: list[str], batch: Batch) -> CsvChunk:
    return CsvChunk(
        np.arange(batch.first_row, batch.first_row + len(batch)),
        batch.lines,
        {
            name: CellColumn(path, name, batch.lines, cells)
            for name, cells in zip(header, batch.columns(len(header)), strict=True)
        },
    )
