"""Columns that grow on disk: of a trace too long to be gathered in memory."""

from __future__ import annotations

import mmap
import tempfile
from typing import Any

import numpy as np
import numpy.typing as npt

_ROWS_AT_ONCE = 1 << 20


class ColumnSpool:
    """Pieces of one column, written one after another to a nameless file.

    The file is gone when nobody reads the column any more.
    """

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="headway-")  # noqa: SIM115 (lives with the column)
        self._dtype: Any = None
        self._num_rows = 0

    def append(self, piece: npt.NDArray[Any]) -> None:
        """Add rows. Pieces of different types become one of the type that holds both.

        Raises:
            OSError: the disk is full.
        """
        if not len(piece):
            return
        dtype = piece.dtype if self._dtype is None else np.result_type(self._dtype, piece.dtype)
        if dtype != self._dtype and self._num_rows:
            self._rewrite(dtype)
        self._dtype, piece = dtype, piece.astype(dtype, copy=False)
        self._file.write(np.ascontiguousarray(piece).data)
        self._file.flush()  # a full disk is met here
        self._num_rows += len(piece)

    def column(self) -> npt.NDArray[Any]:
        """The whole column, read-only; its pages are read from the file when they are used."""
        if not self._num_rows:
            return np.empty(0, self._dtype)
        pages = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        return np.frombuffer(pages, dtype=self._dtype, count=self._num_rows)

    def _rewrite(self, dtype: np.dtype[Any]) -> None:
        old, self._file = self.column(), tempfile.TemporaryFile(prefix="headway-")  # noqa: SIM115
        for start in range(0, len(old), _ROWS_AT_ONCE):
            self._file.write(old[start : start + _ROWS_AT_ONCE].astype(dtype).data)


def is_read_only_file(array: npt.NDArray[Any]) -> bool:
    """Whether an array lies in a file that was opened to be read."""
    base: Any = array.base
    while isinstance(base, np.ndarray):
        base = base.base
    base = base.obj if isinstance(base, memoryview) else base
    return isinstance(base, mmap.mmap) and not array.flags.writeable and array.flags.c_contiguous
