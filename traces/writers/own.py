"""Headway's own formats: CSV, JSONL and Parquet under the names of `RequestSpec`."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from traces.labels import Labels
from traces.request import NO_PARENT
from traces.trace import Trace
from traces.writers.losses import lost_columns

_ALL = frozenset(
    ("request_id", "priority", "session_id", "parent_id", "think_time_s", "tenant", "lora_id")
)
_NO_CELL = frozenset("\0\r")  # a binary file's mark, and a line end that csv leaves unquoted


class OwnCsv:
    """CSV; an empty cell is an absent value."""

    name = "headway-csv"

    def losses(self, trace: Trace) -> list[str]:
        """All but prompts can be held, and texts that a cell of a text file can be."""
        return [*lost_columns(trace, _ALL), *_texts_no_cell_holds(trace)]

    def write(self, trace: Trace, path: Path) -> None:
        """One row a request."""
        columns = {name: _cells(column) for name, column in _columns(trace).items()}
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(columns)
            writer.writerows(zip(*columns.values(), strict=True))


class OwnJsonl:
    """JSONL; a key that says nothing is left out."""

    name = "headway-jsonl"

    def losses(self, trace: Trace) -> list[str]:
        """Everything can be held."""
        return []

    def write(self, trace: Trace, path: Path) -> None:
        """One object a request."""
        with path.open("w", encoding="utf-8", newline="") as file:
            file.writelines(_json_lines(trace))


class OwnParquet:
    """Parquet; ids of segments are one column, so all texts or all integers."""

    name = "headway-parquet"

    def losses(self, trace: Trace) -> list[str]:
        """Only a mix of text and integer ids can't be held."""
        table = trace.prompts
        if table is None or table.is_text.all() or not table.is_text.any():
            return []
        return ["text and integer segment ids in one trace"]

    def write(self, trace: Trace, path: Path) -> None:
        """One row a request. Mixed ids, if they may be lost, all become texts."""
        import pyarrow as pa  # noqa: PLC0415  (only those who use Parquet pay for it)
        import pyarrow.parquet as pq  # noqa: PLC0415

        columns = {name: _arrow(column) for name, column in _columns(trace).items()}
        table = trace.prompts
        if table is not None:
            ids: Any = pa.array(table.ids)
            if table.is_text.any():
                pairs = zip(table.ids.tolist(), table.is_text.tolist(), strict=True)
                ids = pa.array([table.names[i] if text else str(i) for i, text in pairs])
            segments = pa.StructArray.from_arrays(
                [ids, pa.array(table.lengths)], names=["segment_id", "num_tokens"]
            )
            columns["prompt"] = pa.ListArray.from_arrays(
                pa.array(table.offsets.astype(np.int32)), segments
            )
        pq.write_table(pa.table(columns), path)


def _columns(trace: Trace) -> dict[str, Any]:
    """Columns to write, by name: those that `load` would fill in by itself left out."""
    columns = {
        "arrival_s": trace.arrival_s,
        "num_prompt_tokens": trace.num_prompt_tokens,
        "num_output_tokens": trace.num_output_tokens,
    }
    if not np.array_equal(trace.request_id, np.arange(len(trace))):
        columns["request_id"] = trace.request_id
    if trace.priority.any():
        columns["priority"] = trace.priority
    optional: dict[str, Any] = trace.columns()
    for name in ("session_id", "parent_id", "think_time_s", "tenant", "lora_id"):
        if optional[name] is not None:
            columns[name] = optional[name]
    if trace.parent_id is not None:
        parents = [None if each == NO_PARENT else each for each in trace.parent_id.tolist()]
        columns["parent_id"] = np.array(parents, dtype=object)
    return columns


def _values(column: Any) -> list[Any]:
    """Plain values, None where nothing is said."""
    if isinstance(column, Labels):
        return column.values()
    return [None if value != value or value is None else value for value in column.tolist()]  # noqa: PLR0124 (NaN)


def _cells(column: Any) -> list[Any]:
    return ["" if value is None else _cell(value) for value in _values(column)]


def _cell(value: Any) -> Any:
    if isinstance(value, str) and not _NO_CELL.isdisjoint(value):  # a loss that was allowed
        return "".join(each for each in value if each not in _NO_CELL)
    return value


def _arrow(column: Any) -> Any:
    import pyarrow as pa  # noqa: PLC0415

    if isinstance(column, Labels):
        return pa.array(column.values(), pa.string())
    return pa.array(column.tolist()) if column.dtype == object else pa.array(column)


def _texts_no_cell_holds(trace: Trace) -> list[str]:
    """An empty cell is an absent value, and `_NO_CELL` break rows."""
    names = {name for each in (trace.session_id, trace.tenant) if each for name in each.names}
    lost = ["texts that are empty"] if "" in names else []
    if any(not _NO_CELL.isdisjoint(name) for name in names):
        lost.append("texts with zero characters or carriage returns")
    return lost


def _json_lines(trace: Trace) -> Iterator[str]:
    columns = {name: _values(column) for name, column in _columns(trace).items()}
    rows = zip(*columns.values(), strict=True)
    prompts: Any = trace.prompts if trace.prompts is not None else [()] * len(trace)
    for row, prompt in zip(rows, prompts, strict=True):
        pairs = zip(columns, row, strict=True)
        record = {name: value for name, value in pairs if value is not None}
        if prompt:
            record["prompt"] = prompt
        yield json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n"
