"""BurstGPT, versions 1 to 3, CSV: columns found by name, as version 3 put two in front.

Timestamp is in seconds, whole or decimal, from an origin of its own. Rows with 0 response tokens
are failures; like all rows without output they are dropped and counted. Rows of one Session ID
(version 3, conversations only) follow each other; Elapsed time is the whole latency, so the think
time is the next Timestamp less Timestamp plus Elapsed time, at least 0. Whether request tokens
hold the earlier turns is not stated, so prompts share nothing. Source: github.com/HPMLL/BurstGPT.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from traces.arrays import FloatArray, IntArray
from traces.columns import ColumnNames
from traces.csv_rows import CsvChunk, header_of, read_csv
from traces.files import Head, InputFile
from traces.formats.base import Chunk, Part, Plan, Wanted, numeric_plan
from traces.labels import Labels
from traces.request import NO_PARENT

_NAMES = ColumnNames(
    ("Timestamp", "Request tokens", "Response tokens"),
    ("Session ID", "Elapsed time", "Model", "Total tokens", "Log Type"),
)


class BurstGptFormat:
    """Seconds, request and response tokens; sessions in version 3."""

    name = "burstgpt"
    summary = "CSV with Timestamp,Request tokens,Response tokens[,Session ID,Elapsed time,...]"
    place_word = "line"

    def score(self, head: Head) -> float:
        """Share of the required columns that the first line has."""
        return _NAMES.score(header_of(head))

    def plan(self, head: Head, wanted: Wanted) -> Plan:
        """Seconds, unless said otherwise."""
        return numeric_plan(self.name, wanted, "s")

    def read(self, file: InputFile, part: Part) -> Iterator[Chunk]:
        """Rows in file order."""
        sessions = _Sessions(part.plan.ticks_per_s)
        return read_csv(file, _NAMES, part, sessions.typed)


class _Sessions:
    """Remembers the last row of every session."""

    def __init__(self, ticks_per_s: int) -> None:
        self._ticks_per_s = ticks_per_s
        self._last: dict[str, tuple[int, float]] = {}

    def typed(self, chunk: CsvChunk) -> Chunk:
        times = chunk["Timestamp"].seconds()
        prompt_tokens = chunk["Request tokens"].counts()
        output_tokens = chunk["Response tokens"].counts()
        columns = self._session_columns(chunk, times, prompt_tokens * output_tokens)
        return Chunk(
            rows=chunk.rows,
            places=chunk.places,
            times=times,
            num_prompt_tokens=prompt_tokens,
            num_output_tokens=output_tokens,
            **columns,
        )

    def _session_columns(
        self, chunk: CsvChunk, times: FloatArray, is_kept: IntArray
    ) -> dict[str, Any]:
        if "Session ID" not in chunk:
            return {}
        sessions = chunk["Session ID"].cells
        elapsed_s = self._elapsed_s(chunk)
        parents = np.full(len(sessions), NO_PARENT)
        think_s = np.full(len(sessions), np.nan)
        for row, session in enumerate(sessions):
            if not session or not is_kept[row]:
                continue
            at_s = times[row] / self._ticks_per_s
            if session in self._last:
                parents[row], end_s = self._last[session]
                think_s[row] = max(at_s - end_s, 0.0)
            self._last[session] = int(chunk.rows[row]), at_s + elapsed_s[row]
        labels = Labels.from_values(session or None for session in sessions)
        return {"session_id": labels, "parent_id": parents, "think_time_s": think_s}

    def _elapsed_s(self, chunk: CsvChunk) -> FloatArray:
        """Latency of each row; not a number where it isn't written."""
        if "Elapsed time" not in chunk:
            return np.full(len(chunk.rows), np.nan)
        cells = chunk["Elapsed time"]
        return cells.seconds_or_nan()
