"""The rows of a file gathered into one chunk; those of a long file on disk, not in memory."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np

from traces.formats.base import Chunk, joined_column
from traces.spool import ColumnSpool

_LONG = 1_000_000  # rows; fewer are quicker in memory
_ON_DISK = ("rows", "places", "times", "num_prompt_tokens", "num_output_tokens")


class Gathering:
    """Chunks as they come; once rows are many, the columns that every file has go to disk."""

    def __init__(self) -> None:
        self._chunks: list[Chunk] = []
        self._spools: dict[str, ColumnSpool] = {}
        self._num_rows = 0
        self._num_spooled = 0  # chunks

    def add(self, chunk: Chunk) -> None:
        """Take a chunk.

        Raises:
            OSError: the disk is full.
        """
        self._chunks.append(chunk)
        self._num_rows += len(chunk)
        if self._num_rows > _LONG:
            self._spool()

    def joined(self) -> Chunk | None:
        """All rows as one chunk; an optional column of any is one of all. None without a row."""
        if not self._num_rows:
            return None
        names = [each.name for each in fields(Chunk)]
        return Chunk(**{name: self._column(name) for name in names})

    def _column(self, name: str) -> Any:
        spool = self._spools.get(name)
        return joined_column(name, self._chunks) if spool is None else spool.column()

    def _spool(self) -> None:
        for index in range(self._num_spooled, len(self._chunks)):
            chunk = self._chunks[index]
            # Takes no room, and still says how many rows there are.
            nothing: Any = np.broadcast_to(np.int64(0), (len(chunk),))
            for name in _ON_DISK:
                self._spools.setdefault(name, ColumnSpool()).append(getattr(chunk, name))
            self._chunks[index] = replace(chunk, **dict.fromkeys(_ON_DISK, nothing))
        self._num_spooled = len(self._chunks)
