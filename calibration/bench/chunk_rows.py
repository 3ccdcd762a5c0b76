"""Rows of a table of chunk attention between the measured ones.

A chunk of n tokens after c computed ones attends to n c + n (n + 1) / 2 pairs of tokens: a parabola
over n. A straight line between rows that are 4 times apart lies up to 56 % above it. So between
measured rows the time goes straight over the pairs, and a profile, which is read along straight
lines over n, gets rows in between: at a ratio of 1.25 the lines lie 1.3 % above the parabola at
most (2.4 % below 8 tokens, where rows are whole numbers). Where a kernel goes by rows instead, the
time between is too low; probes of the grid see that, and rows are added.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

_RATIO = 1.25


def with_rows_between(
    rows: Sequence[int], columns: Sequence[int], times: Sequence[Sequence[float]]
) -> tuple[list[int], list[list[float]]]:
    """Return the rows (new tokens) with others between them, and the times of all.

    `times[i][j]` is that of `rows[i]` after `columns[j]` computed tokens, in any unit.
    """
    all_rows, all_times = [rows[0]], [list(times[0])]
    for (low, high), (low_times, high_times) in zip(pairwise(rows), pairwise(times), strict=True):
        for row in (*_between(low, high), high):
            all_rows.append(row)
            all_times.append(
                [
                    start + (end - start) * _share(row, low, high, column)
                    for column, start, end in zip(columns, low_times, high_times, strict=True)
                ]
            )
    return all_rows, all_times


def _share(row: int, low: int, high: int, column: int) -> float:
    """How far a row lies from one to the next, by pairs."""
    first = _pairs(low, column)
    return (_pairs(row, column) - first) / (_pairs(high, column) - first)


def _pairs(new: int, computed: int) -> float:
    return new * computed + new * (new + 1) / 2


def _between(low: int, high: int) -> list[int]:
    """Rows between two, in equal ratios."""
    count = math.ceil(math.log(high / low) / math.log(_RATIO))
    rows = (round(low * (high / low) ** (i / count)) for i in range(1, count))
    return sorted({row for row in rows if low < row < high})
