"""Headway's own columns in JSONL: one object a line, prompts as [[segment_id, tokens], ...]."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from traces.cells import ID_RIGHT, INTEGER_RIGHT
from traces.columns import ColumnNames
from traces.errors import bad_place
from traces.files import Head, InputFile
from traces.formats.base import Chunk, Part, Plan, Wanted, numeric_plan
from traces.formats.headway_csv import EXTRA, REQUIRED
from traces.json_rows import Record, RecordColumns, read_jsonl, score_jsonl
from traces.prompt_table import PromptTable
from traces.request import NO_PARENT, Prompt
from traces.trace_checks import prompt_fault

_NAMES = ColumnNames(REQUIRED, (*EXTRA, "prompt"))
_PROMPT_RIGHT = 'a list of segments, such as [["system-1", 512], ["prompt-7", 30]]'


class HeadwayJsonlFormat:
    """One `RequestSpec` a line; all but times and lengths may be left out."""

    name = "headway-jsonl"
    summary = "JSONL with arrival_s, num_prompt_tokens, num_output_tokens[, prompt, ...]"
    place_word = "line"

    def score(self, head: Head) -> float:
        """Share of the required keys that the first line has."""
        return score_jsonl(_NAMES, head)

    def plan(self, head: Head, wanted: Wanted) -> Plan:
        """Seconds, unless said otherwise."""
        return numeric_plan(self.name, wanted, "s")

    def read(self, file: InputFile, part: Part) -> Iterator[Chunk]:
        """Rows in file order."""
        return read_jsonl(file, _NAMES, part, _Rows().typed)


class _Rows:
    """Reads records, and remembers whether they have ids."""

    def __init__(self) -> None:
        self._with_ids: bool | None = None

    def typed(self, records: Sequence[Record]) -> Chunk:
        self._check_ids_alike(records)
        columns = RecordColumns(records)
        return Chunk(
            rows=columns.rows,
            places=columns.places,
            times=columns.seconds("arrival_s"),
            num_prompt_tokens=columns.integers("num_prompt_tokens"),
            num_output_tokens=columns.integers("num_output_tokens"),
            priority=columns.optional_integers("priority", INTEGER_RIGHT, 0),
            request_id=columns.integers("request_id", ID_RIGHT) if self._with_ids else None,
            prompts=PromptTable.from_prompts(map(_prompt, records)),
            session_id=columns.labels("session_id"),
            parent_id=columns.optional_integers("parent_id", ID_RIGHT, NO_PARENT),
            think_time_s=columns.optional_seconds("think_time_s"),
            tenant=columns.labels("tenant"),
            lora_id=columns.optional_integers("lora_id", ID_RIGHT, 0),
        )

    def _check_ids_alike(self, records: Sequence[Record]) -> None:
        """Row numbers and given ids in one file could collide, so it is all rows or none."""
        for record in records:
            has_one = "request_id" in record.values
            if self._with_ids is None:
                self._with_ids = has_one
            if has_one != self._with_ids:
                state = "is missing" if self._with_ids else "is there, but not in the rows before"
                what = f"key 'request_id' {state}; all rows must have one, or none"
                raise bad_place(record.path, record.where, what)


def _prompt(record: Record) -> Prompt:
    segments: Any = record.values.get("prompt", [])
    if not (isinstance(segments, list) and all(isinstance(each, list) for each in segments)):
        raise record.bad("prompt", segments, _PROMPT_RIGHT)
    prompt: Prompt = tuple(tuple(each) for each in segments)
    fault = prompt_fault(prompt, record.values["num_prompt_tokens"]) if prompt else None
    if fault is not None:
        raise record.wrong(f"prompt: {fault}", "bad prompt")
    return prompt
