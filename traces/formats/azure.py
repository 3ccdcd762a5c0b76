"""Azure LLM inference traces of 2023 and 2024, CSV.

Columns TIMESTAMP, ContextTokens, GeneratedTokens; times of one 2024 file are written with and
without fraction, so each is read by itself. Source: github.com/Azure/AzurePublicDataset.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traces.columns import ColumnNames
from traces.csv_rows import CsvChunk, header_of, read_csv
from traces.files import Head, InputFile
from traces.formats.base import Chunk

_NAMES = ColumnNames(("TIMESTAMP", "ContextTokens", "GeneratedTokens"))


class AzureFormat:
    """Clock times in UTC, prompt and output token counts."""

    name = "azure"
    summary = "CSV with TIMESTAMP,ContextTokens,GeneratedTokens"
    ticks_per_s = 1_000_000_000
    place_word = "line"

    def score(self, head: Head) -> float:
        """Share of the columns that the first line has."""
        return _NAMES.score(header_of(head))

    def read(self, file: InputFile) -> Iterator[Chunk]:
        """Rows in file order."""
        return map(_typed, read_csv(file, _NAMES))

    def start_text(self, ticks: float) -> str:
        """The clock time of `ticks` nanoseconds since 1970, UTC."""
        return f"{np.datetime64(int(ticks), 'ns')}Z"


def _typed(chunk: CsvChunk) -> Chunk:
    return Chunk(
        places=np.array(chunk.lines, dtype=np.int64),
        times=chunk.columns["TIMESTAMP"].clock_ns(),
        num_prompt_tokens=chunk.columns["ContextTokens"].counts(),
        num_output_tokens=chunk.columns["GeneratedTokens"].counts(),
    )
