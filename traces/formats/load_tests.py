"""Load-test outputs as traces: what was sent, and when. A failed request has no output.

Where the tool did not record when it sent, all requests come at 0 and the trace says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from traces.columns import ColumnNames
from traces.files import Head, InputFile
from traces.formats.base import Chunk, Part, Plan, Wanted, numeric_plan
from traces.json_document import document
from traces.json_rows import Record, RecordColumns, read_jsonl
from traces.measured import aiperf, guidellm, llmservingsim_bench, vllm_bench
from traces.measured.load import (
    AIPERF_NAMES,
    score_aiperf,
    score_guidellm,
    score_llmservingsim_bench,
    score_vllm_bench,
)
from traces.measured.results import Measured, sent_columns


@dataclass(frozen=True, slots=True)
class DocumentFormat:
    """A tool that writes one JSON document."""

    name: str
    summary: str
    place_word: str
    scored: Callable[[Head], float]
    parse: Callable[[str, dict[str, object]], Measured]

    def score(self, head: Head) -> float:
        """Share of the keys at its beginning."""
        return self.scored(head)

    def plan(self, head: Head, wanted: Wanted) -> Plan:
        """Seconds."""
        return numeric_plan(self.name, wanted, "s")

    def read(self, file: InputFile, part: Part) -> Iterator[Chunk]:
        """All requests at once."""
        measured = self.parse(file.path, document(file))
        columns = sent_columns(measured.requests)
        numbers = np.arange(len(measured.requests), dtype=np.int64)
        if len(numbers):
            columns["parent_id"] = np.where(
                columns["parent_id"] < 0,
                columns["parent_id"],
                columns["parent_id"] + part.first_row,
            )
            yield Chunk(rows=part.first_row + numbers, places=numbers + 1, **columns)


@dataclass(frozen=True, slots=True)
class RecordsFormat:
    """A tool that writes one JSON object a request."""

    name: str
    summary: str
    scored: Callable[[Head], float]
    names: ColumnNames
    parser: Callable[[], Callable[[str, Sequence[Record]], Measured]]
    place_word: str = "line"

    def score(self, head: Head) -> float:
        """Share of the keys of its first record."""
        return self.scored(head)

    def plan(self, head: Head, wanted: Wanted) -> Plan:
        """Seconds."""
        return numeric_plan(self.name, wanted, "s")

    def read(self, file: InputFile, part: Part) -> Iterator[Chunk]:
        """Requests in file order."""
        parse = self.parser()

        def typed(records: Sequence[Record]) -> Chunk:
            columns = RecordColumns(records)
            sent = sent_columns(parse(file.path, records).requests)
            return Chunk(rows=columns.rows, places=columns.places, **sent)

        return read_jsonl(file, self.names, part, typed)


VLLM_BENCH = DocumentFormat(
    "vllm-bench",
    "JSON of vllm bench serve --save-detailed",
    "request",
    score_vllm_bench,
    vllm_bench.parse,
)
GUIDELLM = DocumentFormat(
    "guidellm", "JSON with benchmarks (guidellm)", "request", score_guidellm, guidellm.parse
)
AIPERF = RecordsFormat(
    "aiperf",
    "JSONL with metadata, metrics (aiperf)",
    score_aiperf,
    AIPERF_NAMES,
    aiperf.Parser,
)
LLMSERVINGSIM_BENCH = RecordsFormat(
    "llmservingsim-bench",
    "JSONL with input_toks, output_toks, arrival_time, queued_ts, ...",
    score_llmservingsim_bench,
    llmservingsim_bench.NAMES,
    lambda: llmservingsim_bench.parse,
)
