"""Headway's own columns in Parquet; `prompt` is a list of {segment_id, num_tokens}."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

import numpy as np

from traces.arrays import FloatArray, IntArray
from traces.cells import COUNT_RIGHT, ID_RIGHT, INTEGER_RIGHT, SECONDS_RIGHT
from traces.columns import ColumnNames
from traces.errors import TraceError, bad_row, bad_value
from traces.files import Head, InputFile
from traces.formats.base import Chunk, Part, Plan, Wanted, numeric_plan
from traces.formats.headway_csv import EXTRA, REQUIRED
from traces.labels import Labels
from traces.not_traces import refuse_rows_of_a_run
from traces.prompt_table import PromptTable
from traces.request import MAX_NUM_TOKENS, NO_PARENT, Prompt
from traces.rows import ROWS_PER_CHUNK
from traces.trace_checks import prompt_fault

PARQUET_MAGIC = b"PAR1"

_NAMES = ColumnNames(REQUIRED, (*EXTRA, "prompt"))
_INT64_MAX = 2**63 - 1
_TEXT_RIGHT = "a text"


class HeadwayParquetFormat:
    """One `RequestSpec` a row, named columns of integers, floats, texts and segment lists."""

    name = "headway-parquet"
    summary = "Parquet with the columns of headway-jsonl"
    place_word = "row"

    def score(self, head: Head) -> float:
        """Certain by the magic bytes: Parquet names its columns at its end."""
        return 1.0 if head.data.startswith(PARQUET_MAGIC) else 0.0

    def plan(self, head: Head, wanted: Wanted) -> Plan:
        """Seconds, unless said otherwise."""
        return numeric_plan(self.name, wanted, "s")

    def read(self, file: InputFile, part: Part) -> Iterator[Chunk]:
        """Rows in file order."""
        if file.packing is not None:
            raise TraceError(f"{file.path}: Parquet packs itself; undo the {file.packing} first")
        with _opened(file.path) as parquet:
            names = list(parquet.schema_arrow.names)
            refuse_rows_of_a_run(Path(file.path), names)
            _NAMES.check(file.path, "schema", "column", names)
            if parquet.metadata.num_rows == 0:
                raise TraceError(f"{file.path}: the table has no rows; a trace has at least one")
            num_read = 0
            for batch in _batches(file.path, parquet):
                rows = _Rows(file.path, part.first_row, num_read, batch)
                yield from part.bad_rows.parsed(rows, _chunk)
                num_read += batch.num_rows
            _check_all_read(file.path, parquet.metadata.num_rows, num_read)


def _opened(path: str) -> Any:
    import pyarrow.parquet as pq  # noqa: PLC0415  (a CSV user need not pay for it)

    with _damage_refused(path):
        return pq.ParquetFile(path)


def _batches(path: str, parquet: Any) -> Iterator[Any]:
    with _damage_refused(path):
        yield from parquet.iter_batches(batch_size=ROWS_PER_CHUNK)


def _check_all_read(path: str, promised: int, found: int) -> None:
    if promised != found:
        raise TraceError(f"{path}: the table says {promised} rows but holds {found}; it is damaged")


@contextmanager
def _damage_refused(path: str) -> Iterator[None]:
    """Turn what Arrow raises for a damaged file into a TraceError."""
    import pyarrow as pa  # noqa: PLC0415

    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0]
        raise TraceError(
            f"{path}: no readable Parquet file ({reason}); it may be cut off or damaged"
        ) from None


@dataclass(frozen=True, slots=True)
class _Rows(Sequence[Any]):
    """Some rows of a table; slicing gives fewer of them."""

    path: str
    first_row: int
    start: int
    batch: Any

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    @overload
    def __getitem__(self, index: int) -> Any: ...

    @overload
    def __getitem__(self, index: slice) -> _Rows: ...

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, int):
            return self.batch[index]
        start, stop, _ = index.indices(len(self))
        piece = self.batch.slice(start, stop - start)
        return _Rows(self.path, self.first_row, self.start + start, piece)


def _chunk(rows: Any) -> Chunk:
    columns = dict(zip(rows.batch.schema.names, rows.batch.columns, strict=True))
    reader = _Columns(rows.path, rows.start + 1, columns)
    prompt_tokens = reader.integers("num_prompt_tokens", 0, MAX_NUM_TOKENS, COUNT_RIGHT)
    numbers = np.arange(rows.start, rows.start + len(rows), dtype=np.int64)
    return Chunk(
        rows=rows.first_row + numbers,
        places=numbers + 1,
        times=reader.seconds("arrival_s"),
        num_prompt_tokens=prompt_tokens,
        num_output_tokens=reader.integers("num_output_tokens", 0, MAX_NUM_TOKENS, COUNT_RIGHT),
        priority=reader.optional_integers("priority", -_INT64_MAX - 1, INTEGER_RIGHT),
        request_id=reader.optional_integers("request_id", 0, ID_RIGHT),
        prompts=reader.prompts(prompt_tokens) if "prompt" in columns else None,
        session_id=reader.labels("session_id"),
        parent_id=reader.optional_integers("parent_id", 0, ID_RIGHT, absent=NO_PARENT),
        think_time_s=reader.seconds_or_nan("think_time_s"),
        tenant=reader.labels("tenant"),
        lora_id=reader.optional_integers("lora_id", 0, ID_RIGHT),
    )


class _Columns:
    """Arrow columns of one batch, checked and turned into arrays."""

    def __init__(self, path: str, first_row: int, columns: dict[str, Any]) -> None:
        self._path = path
        self._first_row = first_row
        self._columns = columns

    def _place(self, index: int) -> str:
        return f"row {self._first_row + index}"

    def _refuse(self, field: str, good: Any, right: str) -> None:
        wrong = np.flatnonzero(~good)
        if wrong.size:
            index = int(wrong[0])
            value = self._columns[field][index].as_py()
            raise bad_value(self._path, self._place(index), field, value, right)

    def _no_nulls(self, field: str, right: str) -> Any:
        column = self._columns[field]
        if column.null_count:
            self._refuse(field, ~column.is_null().to_numpy(zero_copy_only=False), right)
        return column

    def integers(self, field: str, lowest: int, highest: int, right: str) -> IntArray:
        return self._checked_integers(self._no_nulls(field, right), field, lowest, highest, right)

    def _checked_integers(
        self, column: Any, field: str, lowest: int, highest: int, right: str
    ) -> IntArray:
        import pyarrow as pa  # noqa: PLC0415

        if not pa.types.is_integer(column.type):
            raise TraceError(
                f"{self._path}, {self._place(0)}, {field}: {column[0].as_py()!r} is wrong; it must "
                f"be {right}"
            )
        values = column.to_numpy(zero_copy_only=False)
        self._refuse(field, (values >= lowest) & (values <= highest), right)
        return np.asarray(values, dtype=np.int64)

    def optional_integers(
        self, field: str, lowest: int, right: str, absent: int | None = None
    ) -> IntArray | None:
        if field not in self._columns:
            return None
        if absent is None:
            return self.integers(field, lowest, _INT64_MAX, right)
        filled = self._columns[field].fill_null(absent)
        return self._checked_integers(filled, field, min(lowest, absent), _INT64_MAX, right)

    def seconds(self, field: str) -> FloatArray:
        values = self._floats(self._no_nulls(field, SECONDS_RIGHT), field)
        self._refuse(field, np.isfinite(values) & (values >= 0), SECONDS_RIGHT)
        return values

    def seconds_or_nan(self, field: str) -> FloatArray | None:
        if field not in self._columns:
            return None
        values = self._floats(self._columns[field].fill_null(np.nan), field)
        good = np.isnan(values) | (np.isfinite(values) & (values >= 0))
        self._refuse(field, good, SECONDS_RIGHT)
        return values

    def _floats(self, column: Any, field: str) -> FloatArray:
        import pyarrow as pa  # noqa: PLC0415

        if not (pa.types.is_floating(column.type) or pa.types.is_integer(column.type)):
            raise TraceError(
                f"{self._path}, {self._place(0)}, {field}: {column[0].as_py()!r} is wrong; it must "
                f"be {SECONDS_RIGHT}"
            )
        return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.float64)

    def labels(self, field: str) -> Labels | None:
        import pyarrow as pa  # noqa: PLC0415

        if field not in self._columns:
            return None
        column = self._columns[field]
        if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
            raise TraceError(
                f"{self._path}, {self._place(0)}, {field}: {column[0].as_py()!r} is wrong; it must "
                f"be {_TEXT_RIGHT}"
            )
        with _damage_refused(self._path):
            return Labels.from_values(column.to_pylist())

    def prompts(self, prompt_tokens: IntArray) -> PromptTable:
        with _damage_refused(self._path):
            rows = self._columns["prompt"].to_pylist()
        return PromptTable.from_prompts(
            self._prompt(index, row, int(prompt_tokens[index])) for index, row in enumerate(rows)
        )

    def _prompt(self, index: int, row: Any, num_prompt_tokens: int) -> Prompt:
        try:
            prompt: Prompt = tuple((each["segment_id"], each["num_tokens"]) for each in row or ())
        except (TypeError, KeyError):
            right = "a list of {segment_id, num_tokens}"
            raise bad_value(self._path, self._place(index), "prompt", row, right) from None
        fault = prompt_fault(prompt, num_prompt_tokens) if prompt else None
        if fault is not None:
            raise bad_row(self._path, f"{self._place(index)}, prompt", fault, "bad prompt")
        return prompt
