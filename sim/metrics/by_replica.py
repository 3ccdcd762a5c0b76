"""Step rows, which lie in the order of time, taken apart by their replica."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

_Array = npt.NDArray[Any]


class ByReplica:
    """The rows of each replica, by its id from `replica` (one element a row, at least one row).

    `ids` are the replicas that are there, ascending; what the methods give has an element for each.
    """

    def __init__(self, replica: _Array) -> None:
        self._order: npt.NDArray[np.intp] | None = None  # None: all are of one replica
        self._starts = np.zeros(1, dtype=np.intp)
        self.ids: _Array = replica[:1]
        if (replica == replica[0]).all():
            return
        # Numpy sorts 16-bit integers by their digits, in linear time.
        keys = replica.astype(np.uint16) if replica.max() < 1 << 16 else replica
        self._order = np.argsort(keys, kind="stable")
        ordered = replica[self._order]
        self._starts = np.flatnonzero(np.diff(ordered, prepend=-1))
        self.ids = ordered[self._starts]

    def sums(self, column: _Array) -> _Array:
        """Sum of a column's rows."""
        return np.asarray(np.add.reduceat(self._together(column), self._starts))

    def most(self, column: _Array) -> _Array:
        """Largest of a column's rows."""
        return np.asarray(np.maximum.reduceat(self._together(column), self._starts))

    def counts(self, num_rows: int) -> _Array:
        """How many rows there are; `num_rows` of all together."""
        return np.asarray(np.diff(self._starts, append=num_rows))

    def last(self, column: _Array) -> _Array:
        """A column's value in the last row."""
        ends = np.append(self._starts[1:], len(column))
        return np.asarray(self._together(column)[ends - 1])

    def shifted(self, column: _Array, before: _Array) -> _Array:
        """For each row, in the rows' own order, the value of the row before it on its replica.

        `before`: an element a replica, for its first row.
        """
        together = self._together(column)
        moved = np.empty_like(together)
        moved[1:] = together[:-1]
        moved[self._starts] = before
        if self._order is None:
            return moved
        placed = np.empty_like(moved)
        placed[self._order] = moved
        return placed

    def _together(self, column: _Array) -> _Array:
        return column if self._order is None else column[self._order]
