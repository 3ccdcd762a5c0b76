"""Azure LLM inference traces of 2023 and 2024, and the multimodal one of 2025, CSV.

Columns TIMESTAMP, ContextTokens, GeneratedTokens, multimodal NumImages too; times of one file
are written with and without fraction, so each is read by itself. Images are not modelled: their
count is read past. Source: github.com/Azure/AzurePublicDataset.
"""

from __future__ import annotations

from collections.abc import Iterator

from traces.columns import ColumnNames
from traces.csv_rows import CsvChunk, header_of, read_csv
from traces.files import Head, InputFile
from traces.formats.base import Chunk, Part, Plan, Wanted, clock_plan

_NAMES = ColumnNames(("TIMESTAMP", "ContextTokens", "GeneratedTokens"), ("NumImages",))


class AzureFormat:
    """Clock times in UTC, prompt and output token counts."""

    name = "azure"
    summary = "CSV with TIMESTAMP,ContextTokens,GeneratedTokens[,NumImages]"
    place_word = "line"

    def score(self, head: Head) -> float:
        """Share of the columns that the first line has."""
        return _NAMES.score(header_of(head))

    def plan(self, head: Head, wanted: Wanted) -> Plan:
        """Clock times: nothing to guess."""
        plan = clock_plan(self.name, wanted)
        if "NumImages" not in header_of(head):
            return plan
        note = "images are not modelled: NumImages is read past"
        return Plan(time_unit=plan.time_unit, notes=(note,))

    def read(self, file: InputFile, part: Part) -> Iterator[Chunk]:
        """Rows in file order."""
        return read_csv(file, _NAMES, part, _typed)


def _typed(chunk: CsvChunk) -> Chunk:
    if "NumImages" in chunk:
        chunk["NumImages"].counts()
    return Chunk(
        rows=chunk.rows,
        places=chunk.places,
        times=chunk["TIMESTAMP"].clock_ns(),
        num_prompt_tokens=chunk["ContextTokens"].counts(),
        num_output_tokens=chunk["GeneratedTokens"].counts(),
    )
