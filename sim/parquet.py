"""Tables of columns to and from Parquet, in row groups, the same rows giving the same bytes."""

import contextlib
import inspect
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from sim.errors import ResultError
from sim.run_result import Columns

ROW_GROUP_ROWS = 131_072
_ENCODINGS = {"i": "DELTA_BINARY_PACKED", "f": "BYTE_STREAM_SPLIT"}  # by numpy's kind


class RowWriter:
    """Appends chunks of columns to a Parquet file; full row groups go to disk as they fill.

    Chunks may be of any length: where one ends leaves no trace in the file. The first chunk, which
    may have no rows, sets the names and types. `varied` (None: all) are the counts that change
    from row to row: those are kept as differences, the others, whose values come in runs, plain.
    Use as a context manager; without a chunk there is no file.
    """

    def __init__(
        self,
        path: Path,
        row_group_rows: int = ROW_GROUP_ROWS,
        varied: Collection[str] | None = None,
    ):
        self._path = path
        self._varied = varied
        self._row_group_rows = row_group_rows
        self._writer: Any = None
        self._pending: list[Columns] = []
        self._num_pending = 0
        self._is_ended = False

    def append(self, columns: Mapping[str, npt.NDArray[Any]]) -> None:
        """Add rows. Columns must be equal in length, and have the first chunk's names.

        Raises ResultError if they are not, or if the file was ended.
        """
        if self._is_ended:
            raise ResultError(f"{self._path.name}: the file is ended, and takes no more rows")
        chunk = dict(columns)
        lengths = {len(column) for column in chunk.values()}
        if len(lengths) != 1:
            raise ResultError(f"{self._path.name}: columns of unequal lengths {sorted(lengths)}")
        if self._writer is None:
            self._open(chunk)
        self._pending.append(chunk)
        self._num_pending += lengths.pop()
        if self._num_pending >= self._row_group_rows:
            self._write_full_groups()

    def close(self) -> None:
        """Write what is left and end the file. Does nothing if it was ended or given up."""
        if self._writer is None or self._is_ended:
            return
        self._is_ended = True
        try:
            if self._num_pending:
                self._write_group(self._num_pending)
            self._writer.close()
        except BaseException:
            self._let_go()
            raise

    def give_up(self) -> None:
        """End without writing what is left: the file is not whole. Never raises."""
        if self._writer is not None and not self._is_ended:
            self._is_ended = True
            self._let_go()

    def _let_go(self) -> None:
        """Close the file, whatever the disk says: a writer left open complains when collected."""
        with contextlib.suppress(Exception):
            self._writer.close()
        self._writer.is_open = False

    def __enter__(self) -> "RowWriter":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        else:
            self.give_up()

    def _open(self, chunk: Columns) -> None:
        import pyarrow.parquet as pq  # noqa: PLC0415 -- slow to import, needed only here

        schema = _table([{name: column[:0] for name, column in chunk.items()}]).schema
        kinds = {name: column.dtype.kind for name, column in chunk.items()}
        # Counts and times hardly repeat, so a dictionary of them costs time and space: a fourth of
        # the time and half of the space without one.
        self._writer = pq.ParquetWriter(
            self._path,
            schema,
            compression="lz4",
            use_dictionary=[name for name, kind in kinds.items() if kind in "UO"],
            column_encoding={
                name: self._encoding(name, kind)
                for name, kind in kinds.items()
                if kind in _ENCODINGS
            },
            # Least and most of each row group, for readers that look for a time.
            write_statistics=[name for name, kind in kinds.items() if kind == "f"],
            **_one_page_a_column(pq, self._row_group_rows),
        )

    def _encoding(self, name: str, kind: str) -> str:
        is_plain = kind == "i" and self._varied is not None and name not in self._varied
        return "PLAIN" if is_plain else _ENCODINGS[kind]

    def _write_full_groups(self) -> None:
        while self._num_pending >= self._row_group_rows:
            self._write_group(self._row_group_rows)

    def _write_group(self, num_rows: int) -> None:
        """Write the next rows. They stay in the pieces in which they came."""
        pieces: list[Columns] = []
        self._num_pending -= num_rows
        while num_rows:
            chunk = self._pending[0]
            length = len(next(iter(chunk.values())))
            if length <= num_rows:
                self._pending.pop(0)
            else:
                self._pending[0] = _slice(chunk, num_rows, length)
                length = num_rows
            pieces.append(_slice(chunk, 0, length))
            num_rows -= length
        self._writer.write_table(_table(pieces), row_group_size=self._row_group_rows)


def _one_page_a_column(pq: Any, row_group_rows: int) -> dict[str, int]:
    """Options with which each column of a row group is one page: it is quicker both ways.

    And the pieces in which rows came leave no trace then.
    """
    options = {"data_page_size": 1 << 30, "write_batch_size": row_group_rows}
    if "max_rows_per_page" in inspect.signature(pq.ParquetWriter.__init__).parameters:
        options["max_rows_per_page"] = row_group_rows  # newer versions have such a limit
    return options


def write_rows(
    path: Path, columns: Mapping[str, npt.NDArray[Any]], varied: Collection[str] | None = None
) -> None:
    """Write a whole table; text columns may be of dtype str or object.

    `varied`: see `RowWriter`.
    """
    with RowWriter(path, varied=varied) as writer:
        writer.append(columns)


def read_rows(path: Path) -> Columns:
    """Read a whole table. Raises ResultError that names the file if it is missing or broken."""
    chunks = list(iterate_rows(path))
    return _join(chunks)


def count_rows(path: Path) -> int:
    """Rows of a table. Raises ResultError that names the file if it is missing or broken."""
    import pyarrow as pa  # noqa: PLC0415 -- slow to import, needed only here
    import pyarrow.parquet as pq  # noqa: PLC0415

    try:
        return int(pq.read_metadata(path).num_rows)
    except (pa.ArrowException, OSError) as error:
        raise ResultError(f"{path}: not a readable Parquet file ({_first_line(error)})") from error


def read_column(path: Path, name: str) -> npt.NDArray[Any]:
    """Read one column whole; texts as objects, equal texts as one object.

    Raises ResultError that names the file if it is missing or broken.
    """
    import pyarrow as pa  # noqa: PLC0415 -- slow to import, needed only here
    import pyarrow.parquet as pq  # noqa: PLC0415

    try:
        with pq.ParquetFile(path, read_dictionary=[name]) as file:
            parts = [
                _column_values(file.read_row_group(group, [name]).column(name))
                for group in range(file.num_row_groups)
            ]
    except (pa.ArrowException, OSError) as error:
        raise ResultError(f"{path}: not a readable Parquet file ({_first_line(error)})") from error
    return np.concatenate(parts) if len(parts) != 1 else parts[0]


def _column_values(column: Any) -> npt.NDArray[Any]:
    import pyarrow as pa  # noqa: PLC0415 -- slow to import, needed only here

    if not pa.types.is_dictionary(column.type):
        return _to_numpy(column)
    parts = []
    for chunk in column.chunks:
        texts = np.array([sys.intern(text) for text in chunk.dictionary.to_pylist()], dtype=object)
        parts.append(texts[chunk.indices.to_numpy(zero_copy_only=False)])
    return np.concatenate(parts)


def iterate_rows(path: Path, names: Sequence[str] | None = None) -> Iterator[Columns]:
    """Read a table, or some columns of it, one row group at a time.

    A table without rows gives one empty chunk.
    """
    import pyarrow as pa  # noqa: PLC0415 -- slow to import, needed only here
    import pyarrow.parquet as pq  # noqa: PLC0415

    if not path.is_file():
        raise ResultError(f"{path}: no such file; the run folder is not complete")
    try:
        with pq.ParquetFile(path, pre_buffer=False) as file:
            there = file.schema_arrow.names
            if len(set(there)) != len(there):
                raise ResultError(f"{path}: a column is there twice; columns: {', '.join(there)}")
            wanted = there if names is None else list(names)
            if not file.num_row_groups:
                yield _columns(file.schema_arrow.empty_table().select(wanted))
            for group in range(file.num_row_groups):
                # One thread: a row group is read in the time that it takes to share it out.
                yield _columns(file.read_row_group(group, wanted, use_threads=False))
    except (pa.ArrowException, OSError) as error:
        raise ResultError(f"{path}: not a readable Parquet file ({_first_line(error)})") from error


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _table(pieces: Sequence[Columns]) -> Any:
    import pyarrow as pa  # noqa: PLC0415 -- slow to import, needed only here

    names = list(pieces[0])
    columns = [pa.chunked_array([_array(pa, piece[name]) for piece in pieces]) for name in names]
    # No nulls: to tell each value from one would cost a fourth of the writing.
    fields = [
        pa.field(name, column.type, nullable=False)
        for name, column in zip(names, columns, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _array(pa: Any, column: npt.NDArray[Any]) -> Any:
    """A column as Arrow sees it. NaN stays NaN ("never happened") and doesn't become a null.

    From buffers, since `pyarrow.array` imports pandas, which takes longer than a short run.
    """
    length = len(column)
    if column.dtype.kind in "UO":
        values = column.tolist()
        encoded = {text: text.encode() for text in set(values)}
        texts = [encoded[text] for text in values]
        offsets = np.zeros(length + 1, dtype=np.int32)
        np.cumsum([len(text) for text in texts], out=offsets[1:])
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(texts))]
        return pa.Array.from_buffers(pa.string(), length, buffers)
    if column.dtype.kind in _ENCODINGS:
        kind = pa.from_numpy_dtype(column.dtype)
        buffers = [None, pa.py_buffer(np.ascontiguousarray(column))]
        return pa.Array.from_buffers(kind, length, buffers)
    return pa.array(column, from_pandas=False)


def _columns(table: Any) -> Columns:
    return {name: _to_numpy(table.column(name)) for name in table.column_names}


def _to_numpy(column: Any) -> npt.NDArray[Any]:
    import pyarrow as pa  # noqa: PLC0415 -- slow to import, needed only here

    if pa.types.is_string(column.type):
        return np.array(column.to_pylist(), dtype=np.str_)
    values: npt.NDArray[Any] = column.to_numpy()
    return values


def _slice(columns: Columns, start: int, stop: int) -> Columns:
    return {name: column[start:stop] for name, column in columns.items()}


def _join(chunks: list[Columns]) -> Columns:
    if len(chunks) == 1:
        return chunks[0]
    return {name: np.concatenate([chunk[name] for chunk in chunks]) for name in chunks[0]}
