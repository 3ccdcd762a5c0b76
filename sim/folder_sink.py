"""Rows of a run into the Parquet files of its folder, in row groups, as they come."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from sim.metrics import latency_columns
from sim.parquet import RowWriter
from sim.records import GAP_COLUMNS, REQUEST_COLUMNS, STEP_COLUMNS, VARIED_STEP_COLUMNS
from sim.rows import StoredRows, num_rows
from sim.run_result import Columns
from sim.time_split import SPLIT_COLUMNS

REQUESTS, STEPS, GAPS = "requests.parquet", "steps.parquet", "gaps.parquet"


_KEPT_ROWS = 1 << 20  # of a table; more are read from its file when they are needed
_KEPT_STEPS = 1 << 22  # of these columns, which the metrics read
_KEPT_STEP_COLUMNS = (
    "replica",
    "start_s",
    "end_s",
    "num_tokens",
    "num_requests",
    "kv_blocks_used",
    "num_emitted",
    "num_gaps",
)


class FolderSink:
    """Writes the three files into an existing folder; use as a context manager.

    The tables that it gives are in memory while they are short; long ones read from the files, so
    not after these have been moved.
    """

    is_early = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writers = {
            REQUESTS: RowWriter(folder / REQUESTS),
            STEPS: RowWriter(folder / STEPS, varied=VARIED_STEP_COLUMNS),
            GAPS: RowWriter(folder / GAPS),
        }
        self._num_rows = dict.fromkeys(self._writers, 0)
        self._kept: dict[str, list[Columns]] = {name: [] for name in self._writers}
        self._kept_steps: list[Columns] = []
        self._has_split = False

    def add_requests(self, rows: Columns) -> None:
        """Take the next requests; their latencies are written beside them."""
        self._has_split = SPLIT_COLUMNS.keys() <= rows.keys()
        self._add(REQUESTS, rows, latency_columns(rows))

    def add_steps(self, rows: Columns) -> None:
        """Take the next steps."""
        self._add(STEPS, rows)
        if self._num_rows[STEPS] <= _KEPT_STEPS:
            self._kept_steps.append({name: rows[name] for name in _KEPT_STEP_COLUMNS})
        else:
            self._kept_steps = []

    def add_gaps(self, rows: Columns) -> None:
        """Take the next gaps."""
        self._add(GAPS, rows)

    def tables(self) -> tuple[Columns, Columns, Columns]:
        """The tables in the files, which are ended by this."""
        self._close()
        request_columns = REQUEST_COLUMNS | (SPLIT_COLUMNS if self._has_split else {})
        return (
            self._table(REQUESTS, request_columns),
            self._table(STEPS, STEP_COLUMNS),
            self._table(GAPS, GAP_COLUMNS),
        )

    def __enter__(self) -> FolderSink:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self._close()
        for writer in self._writers.values():
            writer.give_up()

    def _add(self, name: str, rows: Columns, beside: Columns | None = None) -> None:
        self._writers[name].append({**rows, **(beside or {})})
        self._num_rows[name] += num_rows(rows)
        if self._num_rows[name] <= _KEPT_ROWS:
            self._kept[name].append(rows)
        else:
            self._kept[name] = []

    def _close(self) -> None:
        for writer in self._writers.values():
            writer.close()

    def _table(self, name: str, kinds: dict[str, Any]) -> Columns:
        num_rows = self._num_rows[name]
        if num_rows <= _KEPT_ROWS:
            return _joined(self._kept[name], kinds)
        kept = _joined(self._kept_steps, _KEPT_STEP_COLUMNS) if name == STEPS else {}
        return StoredRows(self._folder / name, kinds, num_rows, kept)


def _joined(chunks: list[Columns], names: Iterable[str]) -> Columns:
    if not chunks:
        return {}
    return {name: np.concatenate([rows[name] for rows in chunks]) for name in names}
