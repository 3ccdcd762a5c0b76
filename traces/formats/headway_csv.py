"""Headway's own columns in CSV: what `save` writes for a trace without segments."""

from __future__ import annotations

from collections.abc import Iterator

from traces.cells import ID_RIGHT
from traces.columns import ColumnNames
from traces.csv_rows import CsvChunk, header_of, read_csv
from traces.files import Head, InputFile
from traces.formats.base import Chunk, Part, Plan, Wanted, numeric_plan
from traces.labels import Labels

REQUIRED = ("arrival_s", "num_prompt_tokens", "num_output_tokens")
EXTRA = ("request_id", "priority", "session_id", "parent_id", "think_time_s", "tenant", "lora_id")
_NAMES = ColumnNames(REQUIRED, EXTRA)


class HeadwayCsvFormat:
    """Columns under the names of `RequestSpec`; an empty cell is an absent value."""

    name = "headway-csv"
    summary = "CSV with arrival_s,num_prompt_tokens,num_output_tokens[,request_id,priority,...]"
    place_word = "line"

    def score(self, head: Head) -> float:
        """Share of the required columns that the first line has."""
        return _NAMES.score(header_of(head))

    def plan(self, head: Head, wanted: Wanted) -> Plan:
        """Seconds, unless said otherwise."""
        return numeric_plan(self.name, wanted, "s")

    def read(self, file: InputFile, part: Part) -> Iterator[Chunk]:
        """Rows in file order."""
        return read_csv(file, _NAMES, part, _typed)


def _typed(chunk: CsvChunk) -> Chunk:
    return Chunk(
        rows=chunk.rows,
        places=chunk.places,
        times=chunk["arrival_s"].seconds(),
        num_prompt_tokens=chunk["num_prompt_tokens"].counts(),
        num_output_tokens=chunk["num_output_tokens"].counts(),
        priority=chunk["priority"].integers() if "priority" in chunk else None,
        request_id=chunk["request_id"].ids() if "request_id" in chunk else None,
        session_id=_labels(chunk, "session_id"),
        parent_id=chunk["parent_id"].ids_or_none() if "parent_id" in chunk else None,
        think_time_s=chunk["think_time_s"].seconds_or_nan() if "think_time_s" in chunk else None,
        tenant=_labels(chunk, "tenant"),
        lora_id=chunk["lora_id"].integers(ID_RIGHT, lowest=0) if "lora_id" in chunk else None,
    )


def _labels(chunk: CsvChunk, name: str) -> Labels | None:
    return Labels.from_values(cell or None for cell in chunk[name].cells) if name in chunk else None
