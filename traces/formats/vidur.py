"""Vidur's processed traces and Splitwise's, CSV: seconds and lengths, with or without arrivals.

Without a column of arrivals every request comes at 0 and the trace says so: it needs a made-up
arrival process. Source: github.com/microsoft/vidur, data/processed_traces; Splitwise's columns
from github.com/Mutinifni/splitwise-sim (no sample at hand: read as documented there).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from traces.columns import ColumnNames
from traces.csv_rows import CsvChunk, header_of, read_csv
from traces.files import Head, InputFile
from traces.formats.base import Chunk, Part, Plan, Wanted, refuse_block_size

NO_ARRIVALS = (
    "the file has no arrival times: all requests come at 0; give trace.poisson_rate_per_s, or a "
    "closed load"
)


@dataclass(frozen=True, slots=True)
class SecondsCsvFormat:
    """Seconds and token counts in CSV under some project's names."""

    name: str
    arrival: str
    prompt: str
    output: str
    ignored: tuple[str, ...] = ()
    place_word: str = "line"

    @property
    def summary(self) -> str:
        """Its columns."""
        return f"CSV with [{self.arrival},]{self.prompt},{self.output}"

    @property
    def _names(self) -> ColumnNames:
        return ColumnNames((self.prompt, self.output), (self.arrival, *self.ignored))

    def score(self, head: Head) -> float:
        """Share of the required columns that the first line has."""
        return self._names.score(header_of(head))

    def plan(self, head: Head, wanted: Wanted) -> Plan:
        """Seconds, unless said otherwise; no arrivals where their column is missing."""
        refuse_block_size(self.name, wanted)
        unit = wanted.time_unit or "s"
        if self.arrival in header_of(head):
            return Plan(time_unit=unit)
        return Plan(time_unit=unit, has_arrivals=False, notes=(NO_ARRIVALS,))

    def read(self, file: InputFile, part: Part) -> Iterator[Chunk]:
        """Rows in file order."""
        return read_csv(file, self._names, part, self._typed)

    def _typed(self, chunk: CsvChunk) -> Chunk:
        has_arrivals = self.arrival in chunk
        return Chunk(
            rows=chunk.rows,
            places=chunk.places,
            times=chunk[self.arrival].seconds() if has_arrivals else np.zeros(len(chunk.rows)),
            num_prompt_tokens=chunk[self.prompt].counts(),
            num_output_tokens=chunk[self.output].counts(),
        )


VIDUR = SecondsCsvFormat(
    "vidur",
    "arrived_at",
    "num_prefill_tokens",
    "num_decode_tokens",
    ignored=("num_total_tokens", "pd_ratio"),
)
SPLITWISE = SecondsCsvFormat(
    "splitwise",
    "arrival_timestamp",
    "prompt_size",
    "token_size",
    ignored=("request_id", "request_type", "application_id", "batch_size"),
)
