"""Columns of text cells to numbers: vectorised when all is well, precise about the first slip.

Only ASCII digits count as digits; blanks, underscores and thousands separators are errors.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn, TypeVar

import numpy as np

from traces.arrays import FloatArray, IntArray
from traces.errors import bad_value
from traces.request import MAX_NUM_TOKENS

T = TypeVar("T")

COUNT_RIGHT = f"a whole number of tokens from 0 to {MAX_NUM_TOKENS}"
SECONDS_RIGHT = "a finite number of seconds >= 0, such as 12.5"
CLOCK_RIGHT = "a UTC time such as 2023-11-16 18:15:46.6805900 or 2024-05-12 00:00:00+00:00"
INTEGER_RIGHT = "a whole number that fits 64 bits"
ID_RIGHT = "a whole number from 0 to 9223372036854775807"

_INTEGER = re.compile(r"-?[0-9]{1,19}")
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_CLOCK = re.compile(
    r"((?:19|20)[0-9]{2}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?)"
    r"(?:\+00:00|Z)?"
)


_MOST_STYLES = 8


@dataclass(frozen=True, slots=True)
class CellColumn:
    """One column of a piece of a file, and where each of its cells stands."""

    path: str
    field: str
    lines: Sequence[int]
    cells: Sequence[str]

    def counts(self) -> IntArray:
        """Token counts, 0 to `MAX_NUM_TOKENS`; raises TraceError for the first that is not."""
        joined = "".join(self.cells)
        plain = joined.isascii() and joined.isdigit() and all(self.cells)
        if plain and max(map(len, self.cells)) < len(str(MAX_NUM_TOKENS)):
            return np.array(list(map(int, self.cells)), dtype=np.int64)
        return np.array(self._each(count_of, COUNT_RIGHT), dtype=np.int64)

    def integers(self, right: str = INTEGER_RIGHT, lowest: int = -(2**63)) -> IntArray:
        """64-bit integers, at least `lowest`."""
        values = np.array(self._each(_integer_of, right), dtype=np.int64)
        low = np.flatnonzero(values < lowest)
        if low.size:
            self._fail(int(low[0]), right)
        return values

    def ids_or_none(self) -> IntArray:
        """Request ids; -1 for an empty cell."""
        return np.array(self._each(_id_or_none_of, ID_RIGHT), dtype=np.int64)

    def ids(self) -> IntArray:
        """Request ids: 64-bit integers, at least 0."""
        return np.array(self._each(_id_of, ID_RIGHT), dtype=np.int64)

    def seconds(self) -> FloatArray:
        """Finite numbers >= 0."""
        return np.array(self._each(_seconds_of, SECONDS_RIGHT), dtype=np.float64)

    def seconds_or_nan(self) -> FloatArray:
        """Finite numbers >= 0; NaN for an empty cell."""
        return np.array(self._each(_seconds_or_nan_of, SECONDS_RIGHT), dtype=np.float64)

    def clock_ns(self) -> IntArray:
        """Clock times as nanoseconds since 1970, UTC; fractions of up to nine digits."""
        quick = _uniform_clock_ns(self.cells)
        if quick is not None:
            return quick
        matches = [_CLOCK.fullmatch(cell) for cell in self.cells]
        if None in matches:
            self._fail(matches.index(None), CLOCK_RIGHT)
        stamps = [match[1] for match in matches if match]
        try:
            return np.array(stamps, dtype="datetime64[ns]").astype(np.int64)
        except ValueError:
            self._each(_clock_of, CLOCK_RIGHT)
            raise

    def _each(self, parse: Callable[[str], T | None], right: str) -> list[T]:
        values = [parse(cell) for cell in self.cells]
        if None in values:
            self._fail(values.index(None), right)
        return [value for value in values if value is not None]

    def _fail(self, index: int, right: str) -> NoReturn:
        place = f"line {self.lines[index]}"
        raise bad_value(self.path, place, self.field, self.cells[index], right)


def _uniform_clock_ns(cells: Sequence[str]) -> IntArray | None:
    """Clock times of one style or a few, without looking at cells one by one; None if unsure."""
    lengths = np.array([len(cell) for cell in cells])
    styles = np.unique(lengths)
    if len(styles) > _MOST_STYLES or not "".join(cells).isascii():
        return None
    result = np.empty(len(cells), dtype=np.int64)
    for length in styles.tolist():
        rows = np.flatnonzero(lengths == length)
        stamps = _one_style([cells[row] for row in rows.tolist()], length)
        if stamps is None:
            return None
        result[rows] = stamps
    return result


def _one_style(cells: list[str], length: int) -> IntArray | None:
    """Clock times that have digits, and equal other characters, at the places of the first."""
    match = _CLOCK.fullmatch(cells[0])
    if match is None:
        return None
    letters = np.array(cells, dtype=f"S{length}").view(np.uint8).reshape(len(cells), length)
    first = letters[0]
    is_digit = (first >= ord("0")) & (first <= ord("9"))
    digits = letters[:, is_digit]
    century = letters[:, :2].astype(np.int64) @ (10, 1) - ord("0") * 11
    alike = np.all((digits >= ord("0")) & (digits <= ord("9")))
    alike &= np.all(letters[:, ~is_digit] == first[~is_digit])
    if not (alike and np.isin(century, (19, 20)).all()):
        return None
    stamps = np.ascontiguousarray(letters[:, : len(match[1])]).view(f"S{len(match[1])}").ravel()
    try:
        return stamps.astype("datetime64[ns]").astype(np.int64)
    except ValueError:
        return None


def count_of(cell: str) -> int | None:
    """A token count in digits; None if it is none."""
    value = _integer_of(cell)
    return value if value is not None and 0 <= value <= MAX_NUM_TOKENS else None


def _id_of(cell: str) -> int | None:
    value = _integer_of(cell)
    return value if value is not None and value >= 0 else None


def _id_or_none_of(cell: str) -> int | None:
    return _id_of(cell) if cell else -1


def _seconds_or_nan_of(cell: str) -> float | None:
    return _seconds_of(cell) if cell else float("nan")


def _integer_of(cell: str) -> int | None:
    if not _INTEGER.fullmatch(cell):
        return None
    value = int(cell)
    return value if -(2**63) <= value < 2**63 else None


def _seconds_of(cell: str) -> float | None:
    if not _NUMBER.fullmatch(cell):
        return None
    value = float(cell)
    return value if 0 <= value < float("inf") else None


def _clock_of(cell: str) -> str | None:
    match = _CLOCK.fullmatch(cell)
    try:
        np.datetime64(match[1] if match else "", "ns")
    except ValueError:
        return None
    return cell
