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


def none_bad(
    name: str, rows: Columns, bad: npt.NDArray[Any], what: str, columns: tuple[str, ...]
) -> CheckOutcome:
    """Holds if no row is bad; else the detail shows the first bad row's columns."""
    where = np.flatnonzero(bad)
    if not len(where):
        return CheckOutcome(name, True, f"{len(bad):,} {what}, none off")
    first = ", ".join(f"{c}={_cell(rows[c][where[0]])}" for c in columns)
    return CheckOutcome(name, False, f"{len(where):,} of {len(bad):,} {what} off; first: {first}")


def _figure(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.9g}"


def _cell(value: Any) -> str:
    return f"{value:.9g}" if isinstance(value, float | np.floating) else str(value)
