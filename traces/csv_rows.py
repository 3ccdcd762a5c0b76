"""CSV files as columns of cells, a chunk at a time, with the line of every row."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from traces.cells import CellColumn
from traces.columns import ColumnNames
from traces.errors import bad_place, shown
from traces.files import Head, InputFile
from traces.formats.base import ROWS_PER_CHUNK


@dataclass(frozen=True, slots=True)
class CsvChunk:
    """Rows of a CSV file by column name."""

    lines: list[int]
    columns: dict[str, CellColumn]


def header_of(head: Head) -> list[str]:
    """The names in a file's first line, for detection; none if it is JSON."""
    return [] if head.first_line.startswith(("{", "[")) else head.first_line.split(",")


def read_csv(file: InputFile, names: ColumnNames) -> Iterator[CsvChunk]:
    """Chunks of the rows below the header; blank lines are no rows.

    Raises:
        TraceError: names that `names` refuses, a row with too few or too many cells, no rows.
    """
    rows = _numbered_rows(file)
    line, header = next(rows)
    names.check(file.path, f"line {line}", "column", header)
    found_rows = False
    while batch := list(islice(rows, ROWS_PER_CHUNK)):
        found_rows = True
        _check_widths(file.path, header, batch)
        yield _chunk(file.path, header, batch)
    if not found_rows:
        what = "the file ends after its header; a trace has at least one request"
        raise bad_place(file.path, f"line {line}", what)


def _numbered_rows(file: InputFile) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(file.lines(), strict=True)
    try:
        for row in reader:
            if row:
                yield reader.line_num, row
    except csv.Error as error:
        what = f"this is no CSV row ({error}); quotes must be closed and cells short"
        raise bad_place(file.path, f"line {reader.line_num}", what) from None


def _check_widths(path: str, header: list[str], batch: list[tuple[int, list[str]]]) -> None:
    for line, row in batch:
        if len(row) < len(header):
            what = f"the row has {len(row)} cells, but the header has {len(header)}"
            raise bad_place(path, f"line {line}", f"{header[len(row)]} is missing: {what}")
        if len(row) > len(header):
            what = f"the row has {len(row)} cells, but the header has {len(header)}"
            extra = shown(row[len(header)])
            raise bad_place(path, f"line {line}", f"{extra} belongs to no column: {what}")


def _chunk(path: str, header: list[str], batch: list[tuple[int, list[str]]]) -> CsvChunk:
    lines = [line for line, _ in batch]
    columns = zip(*(row for _, row in batch), strict=True)
    return CsvChunk(
        lines,
        {
            name: CellColumn(path, name, lines, cells)
            for name, cells in zip(header, columns, strict=True)
        },
    )
