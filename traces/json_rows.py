"""JSONL files as records, and typed values out of JSON records, with the place of every one."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from traces.arrays import FloatArray, IntArray
from traces.cells import COUNT_RIGHT, ID_RIGHT, INTEGER_RIGHT, SECONDS_RIGHT
from traces.columns import ColumnNames
from traces.errors import RowError, bad_row, bad_value, shown
from traces.files import Head, InputFile
from traces.formats.base import Chunk, Part
from traces.labels import Labels
from traces.request import MAX_NUM_TOKENS
from traces.rows import BadRows, batches
from traces.trace_checks import is_unicode

_UNREADABLE = 0.6
NUMBER_RIGHT = "a finite number"
TEXT_RIGHT = "a text"

_LIMITS: dict[str, tuple[int, int]] = {
    COUNT_RIGHT: (0, MAX_NUM_TOKENS),
    INTEGER_RIGHT: (-(2**63), 2**63 - 1),
    ID_RIGHT: (0, 2**63 - 1),
}


@dataclass(frozen=True, slots=True)
class Record:
    """One JSON object of a file: its row number from 0, where it stands, and its values."""

    row: int
    path: str
    place: int
    values: dict[str, Any]
    place_word: str = "line"

    def integer(self, key: str, right: str = COUNT_RIGHT) -> int:
        """A whole number within the limits that `right` states."""
        lowest, highest = _LIMITS[right]
        value = self.values[key]
        if type(value) is int and lowest <= value <= highest:
            return value
        raise self.bad(key, value, right)

    def seconds(self, key: str, right: str = SECONDS_RIGHT) -> float:
        """A finite number >= 0, whatever its unit."""
        value = self.number(key, right)
        if value >= 0:
            return value
        raise self.bad(key, self.values[key], right)

    def number(self, key: str, right: str = NUMBER_RIGHT) -> float:
        """A finite number."""
        value = self.values[key]
        if type(value) in (int, float):
            try:
                number = float(value)
            except OverflowError:
                number = math.inf
            if math.isfinite(number):
                return number
        raise self.bad(key, value, right)

    def text(self, key: str) -> str | None:
        """A text; None where the key is absent or null."""
        value = self.values.get(key)
        if value is None:
            return None
        if isinstance(value, str) and is_unicode(value):
            return value
        raise self.bad(key, value, TEXT_RIGHT)

    def bad(self, key: str, value: object, right: str) -> RowError:
        """The error for a value of this record."""
        return bad_value(self.path, self.where, key, value, right)

    def wrong(self, what: str, reason: str) -> RowError:
        """The error for this record as a whole."""
        return bad_row(self.path, self.where, what, reason)

    @property
    def where(self) -> str:
        """Its place in words."""
        return f"{self.place_word} {self.place}"


def keys_of(head: Head) -> list[str] | None:
    """The keys of the object in a file's first line; None if it is no readable object."""
    if not head.first_line.startswith("{"):
        return None
    try:
        record = json.loads(head.first_line)
    except (ValueError, RecursionError):
        return None
    return list(record)


def score_jsonl(names: ColumnNames, head: Head) -> float:
    """Share of the required keys in the first line; middling for a line that can't be read."""
    keys = keys_of(head)
    if keys is not None:
        return names.score(keys)
    is_object = head.first_line.startswith("{")
    if not is_object:
        return 0.0
    # The keys of a broken line are still to be seen in its text.
    seen = [name for name in names.required if f'"{name}"' in head.first_line]
    return _UNREADABLE * len(seen) / len(names.required)


def head_records(head: Head) -> Iterator[dict[str, Any]]:
    """The readable objects among the first whole lines of a file."""
    for line in head.data.decode("utf-8", errors="replace").splitlines()[:-1] or [head.first_line]:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict):
            yield record


def read_jsonl(
    file: InputFile,
    names: ColumnNames,
    part: Part,
    typed: Callable[[Sequence[Record]], Chunk],
) -> Iterator[Chunk]:
    """Chunks of the records; blank lines are no rows.

    Raises:
        TraceError: a bad row where those are errors.
    """

    def parse(batch: Sequence[tuple[int, int, str]]) -> Chunk:
        return typed([_parsed(file.path, names, *each) for each in batch])

    lines = ((number, line) for number, line in enumerate(file.lines(), start=1) if line.strip())
    rows = ((row, *each) for row, each in enumerate(lines, start=part.first_row))
    for batch in batches(rows):
        yield from part.bad_rows.parsed(batch, parse)


def read_records(
    file: InputFile, names: ColumnNames, first_row: int, bad_rows: BadRows
) -> Iterator[Record]:
    """The records one by one, numbered from `first_row`."""
    row = first_row
    for number, line in enumerate(file.lines(), start=1):
        if not line.strip():
            continue
        yield from bad_rows.parsed(
            [(row, number, line)], lambda some: _parsed(file.path, names, *some[0])
        )
        row += 1


def _parsed(path: str, names: ColumnNames, row: int, number: int, line: str) -> Record:
    place = f"line {number}"
    try:
        record = json.loads(line, object_pairs_hook=unique_keys)
    except json.JSONDecodeError as error:
        what = f"this is no JSON ({error.msg} at column {error.colno}); each line must be an object"
        raise bad_row(path, place, what, "no JSON") from None
    except (ValueError, RecursionError) as error:
        raise bad_row(path, place, f"this is no record: {error}", "no JSON") from None
    if not isinstance(record, dict):
        what = f"{shown(record)} is wrong; each line must be an object"
        raise bad_row(path, place, what, "no object")
    fault = names.fault("key", list(record))
    if fault is not None:
        raise bad_row(path, place, fault, "wrong keys")
    return Record(row, path, number, record)


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object from its pairs; raises ValueError if a key occurs twice."""
    record = dict(pairs)
    if len(record) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"key {repeated!r} occurs twice; each must occur once")
    return record


class RecordColumns:
    """Columns of some records, each value checked."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.records = records

    @property
    def rows(self) -> IntArray:
        """Row number of each record."""
        return np.array([record.row for record in self.records], dtype=np.int64)

    @property
    def places(self) -> IntArray:
        """Place of each record."""
        return np.array([record.place for record in self.records], dtype=np.int64)

    def integers(self, key: str, right: str = COUNT_RIGHT) -> IntArray:
        """A key that every record has."""
        return np.array([record.integer(key, right) for record in self.records], dtype=np.int64)

    def optional_integers(self, key: str, right: str, absent: int) -> IntArray | None:
        """A key that some records have; None if none has it."""
        if not any(key in record.values for record in self.records):
            return None
        return np.array(
            [
                record.integer(key, right) if key in record.values else absent
                for record in self.records
            ],
            dtype=np.int64,
        )

    def seconds(self, key: str, right: str = SECONDS_RIGHT) -> FloatArray:
        """Numbers >= 0."""
        return np.array([record.seconds(key, right) for record in self.records])

    def optional_seconds(self, key: str) -> FloatArray | None:
        """Numbers >= 0, NaN where absent or null; None if no record has one."""
        if not any(record.values.get(key) is not None for record in self.records):
            return None
        return np.array(
            [
                np.nan if record.values.get(key) is None else record.seconds(key)
                for record in self.records
            ]
        )

    def labels(self, key: str) -> Labels | None:
        """Texts; None if no record has one."""
        texts = [record.text(key) for record in self.records]
        return Labels.from_values(texts) if any(text is not None for text in texts) else None
