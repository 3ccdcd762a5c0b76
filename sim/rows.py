"""Tables that may be larger than memory: columns on disk, and the walk over any table in pieces.

A walk is always over pieces of the same size, wherever the table lies, so that sums of times come
out equal bit for bit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sim.parquet import ROW_GROUP_ROWS, iterate_rows, read_column
from sim.run_result import Columns


class StoredRows(Mapping[str, npt.NDArray[Any]]):
    """A table in a Parquet file: a column is read whole when it is asked for, and not kept.

    Columns of texts are kept: they take long to read, and hold each text once. `kinds` names the
    columns that are there, with their types; `in_memory` holds some of them.
    """

    def __init__(
        self,
        path: Path,
        kinds: Mapping[str, Any],
        num_rows: int,
        in_memory: Columns | None = None,
    ) -> None:
        self.path = path
        self.num_rows = num_rows
        self._kinds = dict(kinds)
        self._in_memory = dict(in_memory or {})

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        if name not in self._kinds:
            raise KeyError(name)
        if name in self._in_memory:
            return self._in_memory[name]
        column = read_column(self.path, name) if self.num_rows else np.empty(0, self._kinds[name])
        if column.dtype.kind == "O":
            self._in_memory[name] = column
        return column

    def __iter__(self) -> Iterator[str]:
        return iter(self._kinds)

    def __len__(self) -> int:
        return len(self._kinds)

    def without(self, names: Collection[str]) -> StoredRows:
        """The table less some columns."""
        kinds = {name: kind for name, kind in self._kinds.items() if name not in names}
        kept = {name: column for name, column in self._in_memory.items() if name in kinds}
        return StoredRows(self.path, kinds, self.num_rows, kept)

    def pieces(self, names: Sequence[str]) -> Iterator[Columns]:
        """Some columns, a row group at a time."""
        if all(name in self._in_memory for name in names):
            yield from _cut(self._in_memory, self.num_rows, names)
        elif self.num_rows:
            yield from iterate_rows(self.path, names)


def num_rows(columns: Columns) -> int:
    """Rows of a table."""
    if isinstance(columns, StoredRows):
        return columns.num_rows
    return len(next(iter(columns.values())))


def pieces(columns: Columns, names: Sequence[str]) -> Iterator[Columns]:
    """Some columns of a table, `ROW_GROUP_ROWS` rows at a time; nothing of a table without rows."""
    if isinstance(columns, StoredRows):
        yield from columns.pieces(names)
    else:
        yield from _cut(columns, num_rows(columns), names)


def _cut(columns: Columns, num_rows: int, names: Sequence[str]) -> Iterator[Columns]:
    for start in range(0, num_rows, ROW_GROUP_ROWS):
        yield {name: columns[name][start : start + ROW_GROUP_ROWS] for name in names}
