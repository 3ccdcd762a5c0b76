"""WEKA agentic coding sessions, JSON: one session a file, hash ids of 64 tokens that are its own.

A session is a chain of requests; t is seconds from its start, think_time the seconds from the
answer before. Hash ids count full blocks only: what is left of a prompt is content of its own. Ids
mean something within one file, so those of the k-th file get k * 2^40 added. The requests of a
subagent hang on the request before it, and the request after it waits for the one of them that
ended last as recorded; no recording with subagents was at hand, so their shape (a list `requests`
with the same keys) is read as documented. There are no times across sessions: in an open load all
begin at 0. Source: github.com/callanjfox/kv-cache-tester.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from traces.errors import TraceError, shown
from traces.files import Head, InputFile
from traces.formats.base import Chunk, Part, Plan, Wanted
from traces.hash_blocks import BlockIds
from traces.json_document import document, list_in, looks_like
from traces.json_rows import Record, RecordColumns
from traces.labels import Labels
from traces.request import NO_PARENT

_USUAL_BLOCK_SIZE = 64
_FILE_BITS = 40
_RIGHT = "a list of requests"
NO_COMMON_TIME = (
    "sessions have no common time: in an open load all begin at 0; give load mode sessions with a "
    "concurrency"
)


class WekaFormat:
    """One session a file; a glob reads many."""

    name = "weka"
    summary = "JSON with block_size, hash_id_scope, requests[t, in, out, ...]"
    place_word = "request"

    def score(self, head: Head) -> float:
        """Share of the keys at the beginning of a session file."""
        return looks_like(head, "requests", "block_size", "hash_id_scope")

    def plan(self, head: Head, wanted: Wanted) -> Plan:
        """Seconds; the block size that the file states."""
        unit = wanted.time_unit or "s"
        size = wanted.block_size or _stated_block_size(head)
        return Plan(unit, size, True, has_common_time=False, notes=(NO_COMMON_TIME,))

    def read(self, file: InputFile, part: Part) -> Iterator[Chunk]:
        """The requests of one session, those of subagents among them, in the order of the file."""
        session = document(file)
        rows = _flat(file.path, list_in(file.path, session, "requests", _RIGHT), part)
        blocks = BlockIds(
            "hash_ids",
            "in",
            part.plan.block_size or _USUAL_BLOCK_SIZE,
            full_only=True,
            may_lack_more=True,
            first_id=part.index << _FILE_BITS,
        )
        name = str(session.get("id", file.path))
        yield from part.bad_rows.parsed(rows, lambda some: _typed(blocks, name, some))


def _stated_block_size(head: Head) -> int:
    text = head.data.decode("utf-8", errors="replace")
    _, _, after = text.partition('"block_size":')
    digits = after.strip().split(",")[0].split("}")[0].strip()
    return int(digits) if digits.isascii() and digits.isdigit() and int(digits) else 64


@dataclass(frozen=True, slots=True)
class _Row:
    record: Record
    parent: int


def _flat(path: str, requests: list[Any], part: Part) -> list[_Row]:
    rows: list[_Row] = []
    _append(path, requests, part.first_row, NO_PARENT, rows)
    return rows


def _append(path: str, requests: list[Any], first_row: int, parent: int, rows: list[_Row]) -> int:
    """Add a chain of requests; returns the row that the request after it waits for."""
    waits_for, ends_s = parent, -1.0
    for values in requests:
        place = len(rows) + 1
        if not isinstance(values, dict):
            what = f"{shown(values)} is wrong; it must be an object"
            raise TraceError(f"{path}, request {place}: {what}")
        if values.get("type") == "subagent":
            nested = list_in(path, values, "requests", _RIGHT)
            last = _append(path, nested, first_row, parent, rows)
            end_s = _recorded_end_s(rows, last - first_row)
            if end_s >= ends_s:
                waits_for, ends_s = last, end_s
            continue
        row = first_row + len(rows)
        rows.append(_Row(Record(row, path, place, values, "request"), waits_for))
        parent = waits_for = row
        ends_s = -1.0
    return waits_for


def _recorded_end_s(rows: list[_Row], index: int) -> float:
    """When a request ended as recorded; 0 where that can't be told (its row will be refused)."""
    if not 0 <= index < len(rows):
        return 0.0
    values = rows[index].record.values
    times: list[Any] = [values.get("t"), values.get("api_time")]
    return float(sum(time for time in times if type(time) in (int, float)))


def _typed(blocks: BlockIds, session: str, rows: Any) -> Chunk:
    records = [row.record for row in rows]
    for record in records:
        for key in ("t", "in", "out"):
            if key not in record.values:
                raise record.wrong(f"key {key!r} is missing", "wrong keys")
    columns = RecordColumns(records)
    prompt_tokens = columns.integers("in")
    think = columns.optional_seconds("think_time")
    return Chunk(
        rows=columns.rows,
        places=columns.places,
        times=columns.seconds("t"),
        num_prompt_tokens=prompt_tokens,
        num_output_tokens=columns.integers("out"),
        prompts=blocks.table(records),
        session_id=Labels.from_values([session] * len(records)),
        parent_id=np.array([row.parent for row in rows], dtype=np.int64),
        think_time_s=think,
    )
