"""Headway's own columns in Parquet; `prompt` is a list of {segment_id, num_tokens}."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from traces.arrays import FloatArray, IntArray
from traces.cells import COUNT_RIGHT, ID_RIGHT, INTEGER_RIGHT, SECONDS_RIGHT
from traces.columns import ColumnNames
from traces.errors import TraceError, bad_place, bad_value
from traces.files import Head, InputFile
from traces.formats.base import ROWS_PER_CHUNK, Chunk
from traces.request import MAX_NUM_TOKENS, Prompt
from traces.trace_checks import prompt_fault

PARQUET_MAGIC = b"PAR1"

_NAMES = ColumnNames(
    ("arrival_s", "num_prompt_tokens", "num_output_tokens"), ("request_id", "priority", "prompt")
)
_INT64_MAX = 2**63 - 1


class HeadwayParquetFormat:
    """One `RequestSpec` a row, named columns of integers, floats and segment lists."""

    name = "headway-parquet"
    summary = "Parquet with the columns of headway-jsonl"
    ticks_per_s = 1
    place_word = "row"

    def score(self, head: Head) -> float:
        """Certain by the magic bytes: Parquet names its columns at its end."""
        return 1.0 if head.data.startswith(PARQUET_MAGIC) else 0.0

    def read(self, file: InputFile) -> Iterator[Chunk]:
        """Rows in file order."""
        with _opened(file.path) as parquet:
            _NAMES.check(file.path, "schema", "column", list(parquet.schema_arrow.names))
            if parquet.metadata.num_rows == 0:
                raise TraceError(f"{file.path}: the table has no rows; a trace has at least one")
            first_row = 1
            for batch in _batches(file.path, parquet):
                yield _chunk(file.path, first_row, batch)
                first_row += batch.num_rows
            _check_all_read(file.path, parquet.metadata.num_rows, first_row - 1)

    def start_text(self, ticks: float) -> str:
        """`ticks` in seconds."""
        return f"{ticks!r} s"


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


def _chunk(path: str, first_row: int, batch: Any) -> Chunk:
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    reader = _Columns(path, first_row, columns)
    prompt_tokens = reader.integers("num_prompt_tokens", 0, MAX_NUM_TOKENS, COUNT_RIGHT)
    return Chunk(
        places=np.arange(first_row, first_row + batch.num_rows, dtype=np.int64),
        times=reader.seconds("arrival_s"),
        num_prompt_tokens=prompt_tokens,
        num_output_tokens=reader.integers("num_output_tokens", 0, MAX_NUM_TOKENS, COUNT_RIGHT),
        priority=reader.optional_integers("priority", -_INT64_MAX - 1, INTEGER_RIGHT),
        request_id=reader.optional_integers("request_id", 0, ID_RIGHT),
        prompts=reader.prompts(prompt_tokens) if "prompt" in columns else None,
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
        import pyarrow as pa  # noqa: PLC0415

        column = self._no_nulls(field, right)
        if not pa.types.is_integer(column.type):
            raise bad_value(self._path, self._place(0), field, column[0].as_py(), right)
        values = column.to_numpy(zero_copy_only=False)
        self._refuse(field, (values >= lowest) & (values <= highest), right)
        return np.asarray(values, dtype=np.int64)

    def optional_integers(self, field: str, lowest: int, right: str) -> IntArray | None:
        if field not in self._columns:
            return None
        return self.integers(field, lowest, _INT64_MAX, right)

    def seconds(self, field: str) -> FloatArray:
        import pyarrow as pa  # noqa: PLC0415

        column = self._no_nulls(field, SECONDS_RIGHT)
        if not (pa.types.is_floating(column.type) or pa.types.is_integer(column.type)):
            raise bad_value(self._path, self._place(0), field, column[0].as_py(), SECONDS_RIGHT)
        values = column.to_numpy(zero_copy_only=False).astype(np.float64)
        self._refuse(field, np.isfinite(values) & (values >= 0), SECONDS_RIGHT)
        return np.asarray(values)

    def prompts(self, prompt_tokens: IntArray) -> list[Prompt]:
        with _damage_refused(self._path):
            rows = self._columns["prompt"].to_pylist()
        return [
            self._prompt(index, row, int(prompt_tokens[index])) for index, row in enumerate(rows)
        ]

    def _prompt(self, index: int, row: Any, num_prompt_tokens: int) -> Prompt:
        try:
            prompt: Prompt = tuple((each["segment_id"], each["num_tokens"]) for each in row or ())
        except (TypeError, KeyError):
            right = "a list of {segment_id, num_tokens}"
            raise bad_value(self._path, self._place(index), "prompt", row, right) from None
        fault = prompt_fault(prompt, num_prompt_tokens) if prompt else None
        if fault is not None:
            raise bad_place(self._path, f"{self._place(index)}, prompt", fault)
        return prompt
