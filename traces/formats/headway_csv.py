"""Headway's own columns in CSV: what `save` writes for a trace without segments."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traces.columns import ColumnNames
from traces.csv_rows import CsvChunk, header_of, read_csv
from traces.files import Head, InputFile
from traces.formats.base import Chunk

REQUIRED = ("arrival_s", "num_prompt_tokens", "num_output_tokens")
_NAMES = ColumnNames(REQUIRED, ("request_id", "priority"))


class HeadwayCsvFormat:
    """Seconds and token counts under the names of `RequestSpec`."""

    name = "headway-csv"
    summary = "CSV with arrival_s,num_prompt_tokens,num_output_tokens[,request_id][,priority]"
    ticks_per_s = 1
    place_word = "line"

    def score(self, head: Head) -> float:
        """Share of the required columns that the first line has."""
        return _NAMES.score(header_of(head))

    def read(self, file: InputFile) -> Iterator[Chunk]:
        """Rows in file order."""
        return map(_typed, read_csv(file, _NAMES))

    def start_text(self, ticks: float) -> str:
        """`ticks` in seconds."""
        return f"{ticks!r} s"


def _typed(chunk: CsvChunk) -> Chunk:
    columns = chunk.columns
    return Chunk(
        places=np.array(chunk.lines, dtype=np.int64),
        times=columns["arrival_s"].seconds(),
        num_prompt_tokens=columns["num_prompt_tokens"].counts(),
        num_output_tokens=columns["num_output_tokens"].counts(),
        priority=columns["priority"].integers() if "priority" in columns else None,
        request_id=columns["request_id"].ids() if "request_id" in columns else None,
    )
