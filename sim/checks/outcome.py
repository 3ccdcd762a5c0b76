"""What a check found: its name, whether it holds, and both figures."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sim.run_result import Columns

RELATIVE_ERROR = 1e-9
"""Two sums of the same times in another order may differ by rounding, not by more."""


@dataclass(frozen=True, slots=True)
class CheckOutcome:
    """One invariant of a run: `detail` is a sentence with both figures."""

    name: str
    ok: bool
    detail: str


def compare(name: str, left: float, right: float, says: tuple[str, str]) -> CheckOutcome:
    """Equal if two whole numbers are the same, or two sums of times agree up to rounding."""
    exact = isinstance(left, int) and isinstance(right, int)
    ok = left == right if exact else is_close(left, right)
    return CheckOutcome(name, ok, f"{says[0]} {_figure(left)}, {says[1]} {_figure(right)}")


def is_close(left: float, right: float) -> bool:
    """Equal up to the rounding of sums; NaN is close to nothing."""
    return abs(left - right) <= RELATIVE_ERROR * max(1.0, abs(left), abs(right))


class Tally:
    """Counts bad rows of a table that is walked over in pieces, and shows the first one's columns.

    `name` is the check's, `what` the rows' in words.
    """

    def __init__(self, name: str, what: str, columns: tuple[str, ...]) -> None:
        self._name = name
        self._what = what
        self._columns = columns
        self._num_rows = 0
        self._num_bad = 0
        self._first = ""

    def add(self, rows: Columns, bad: npt.NDArray[Any]) -> None:
        """Take in some rows, and which of them are bad."""
        where = np.flatnonzero(bad)
        if len(where) and not self._num_bad:
            self._first = ", ".join(f"{c}={_cell(rows[c][where[0]])}" for c in self._columns)
        self._num_rows += len(bad)
        self._num_bad += len(where)

    def outcome(self) -> CheckOutcome:
        """Holds if no row was bad."""
        if not self._num_bad:
            return CheckOutcome(self._name, True, f"{self._num_rows:,} {self._what}, none off")
        share = f"{self._num_bad:,} of {self._num_rows:,} {self._what} off"
        return CheckOutcome(self._name, False, f"{share}; first: {self._first}")


def none_bad(
    name: str, rows: Columns, bad: npt.NDArray[Any], what: str, columns: tuple[str, ...]
) -> CheckOutcome:
    """Holds if no row is bad; else the detail shows the first bad row's columns."""
    tally = Tally(name, what, columns)
    tally.add(rows, bad)
    return tally.outcome()


def _figure(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.9g}"


def _cell(value: Any) -> str:
    return f"{value:.9g}" if isinstance(value, float | np.floating) else str(value)
