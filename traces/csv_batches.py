"""Rows of a CSV file a batch at a time: quickly while no cell is quoted, else with a full reader.

A line without quotes and lone carriage returns is its cells with commas between, so such lines are
cut many at once; from the first batch with others on, `csv` reads the file. Blank lines are no
rows.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Protocol

from traces.errors import TraceError, bad_place
from traces.rows import ROWS_PER_CHUNK


class Batch(Protocol):
    """Some rows of a file, one after the other."""

    @property
    def first_row(self) -> int:
        """Number of the first row."""

    @property
    def lines(self) -> Sequence[int]:
        """The line in which each row ends."""

    def __len__(self) -> int: ...

    def __getitem__(self, part: slice, /) -> Batch: ...

    def widths(self) -> list[int]:
        """Cells of each row."""

    def row(self, index: int) -> list[str]:
        """The cells of one row."""

    def columns(self, width: int) -> list[Sequence[str]]:
        """The cells of each column; every row must have `width` of them."""


@dataclass(frozen=True, slots=True)
class PlainBatch:
    """Rows of unquoted cells, as their lines without the ends."""

    first_row: int
    lines: Sequence[int]
    texts: list[str]

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, part: slice, /) -> PlainBatch:
        first, _, _ = part.indices(len(self))
        return PlainBatch(self.first_row + first, self.lines[part], self.texts[part])

    def widths(self) -> list[int]:
        """Cells of each row."""
        return [text.count(",") + 1 for text in self.texts]

    def row(self, index: int) -> list[str]:
        """The cells of one row."""
        return self.texts[index].split(",")

    def columns(self, width: int) -> list[Sequence[str]]:
        """The cells of each column; every row must have `width` of them."""
        cells = ",".join(self.texts).split(",")
        return [cells[column::width] for column in range(width)]


@dataclass(frozen=True, slots=True)
class ReadBatch:
    """Rows as `csv` read them."""

    first_row: int
    lines: Sequence[int]
    rows: list[list[str]]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, part: slice, /) -> ReadBatch:
        first, _, _ = part.indices(len(self))
        return ReadBatch(self.first_row + first, self.lines[part], self.rows[part])

    def widths(self) -> list[int]:
        """Cells of each row."""
        return list(map(len, self.rows))

    def row(self, index: int) -> list[str]:
        """The cells of one row."""
        return self.rows[index]

    def columns(self, width: int) -> list[Sequence[str]]:
        """The cells of each column; every row must have `width` of them."""
        return list(zip(*self.rows, strict=True)) if self.rows else [()] * width


def header_and_batches(
    path: str, lines: Iterator[str], first_row: int
) -> tuple[int, list[str], Iterator[Batch]]:
    """The line and cells of the first row, and the rows below it, numbered from `first_row`.

    Raises:
        TraceError: a row that is no CSV; at the row.
    """
    numbered = _numbered_rows(path, lines, 0)
    line, header = next(numbered)  # takes no line beyond its own
    return line, header, _batches(path, lines, line, first_row)


def _batches(path: str, lines: Iterator[str], num_lines: int, first_row: int) -> Iterator[Batch]:
    while True:
        some, error = _take(lines)
        if not some and error is None:
            return
        batch = _plain_batch(some, num_lines + 1, first_row)
        if batch is None:
            rest = lines if error is None else _raising(error)
            yield from _read_batches(path, chain(some, rest), num_lines, first_row)
            return
        num_lines += len(some)
        first_row += len(batch)
        if len(batch):
            yield batch
        if error is not None:
            raise error


def _take(lines: Iterator[str]) -> tuple[list[str], TraceError | None]:
    """Some lines, and what is wrong with the one after them: faults before it come first."""
    some: list[str] = []
    try:
        some.extend(islice(lines, ROWS_PER_CHUNK))
    except TraceError as error:
        return some, error
    return some, None


def _raising(error: TraceError) -> Iterator[str]:
    raise error
    yield


def _plain_batch(some: list[str], first_line: int, first_row: int) -> PlainBatch | None:
    """None where a line needs the full reader."""
    text = "".join(some).replace("\r\n", "\n")
    if '"' in text or "\r" in text or max(map(len, some), default=0) >= csv.field_size_limit():
        return None
    texts = text.removesuffix("\n").split("\n")
    numbers: Sequence[int] = range(first_line, first_line + len(texts))
    if "" in texts:
        numbers = [number for number, line in zip(numbers, texts, strict=True) if line]
        texts = [line for line in texts if line]
    return PlainBatch(first_row, numbers, texts)


def _read_batches(
    path: str, lines: Iterator[str], num_lines: int, first_row: int
) -> Iterator[ReadBatch]:
    numbered = _numbered_rows(path, lines, num_lines)
    while some := list(islice(numbered, ROWS_PER_CHUNK)):
        numbers, rows = zip(*some, strict=True)
        yield ReadBatch(first_row, numbers, list(rows))
        first_row += len(rows)


def _numbered_rows(
    path: str, lines: Iterator[str], num_lines: int
) -> Iterator[tuple[int, list[str]]]:
    """Rows that are not blank, each with the line that it ends in; `num_lines` came before."""
    reader = csv.reader(lines, strict=True)
    try:
        for row in reader:
            if row:
                yield num_lines + reader.line_num, row
    except csv.Error as error:
        what = f"this is no CSV row ({error}); quotes must be closed and cells short"
        raise bad_place(path, f"line {num_lines + reader.line_num}", what) from None
