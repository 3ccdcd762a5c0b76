"""Headway's own columns in JSONL: one object a line, prompts as [[segment_id, tokens], ...]."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np

from traces.cells import COUNT_RIGHT, ID_RIGHT, INTEGER_RIGHT, SECONDS_RIGHT
from traces.columns import ColumnNames
from traces.errors import bad_place, bad_value, shown
from traces.files import Head, InputFile
from traces.formats.base import ROWS_PER_CHUNK, Chunk
from traces.request import MAX_NUM_TOKENS, Prompt
from traces.trace_checks import prompt_fault

_NAMES = ColumnNames(
    ("arrival_s", "num_prompt_tokens", "num_output_tokens"), ("request_id", "priority", "prompt")
)
_UNREADABLE = 0.6
_PROMPT_RIGHT = 'a list of segments, such as [["system-1", 512], ["prompt-7", 30]]'

_Row = tuple[int, float, int, int, int, int | None, Prompt]


class HeadwayJsonlFormat:
    """One `RequestSpec` a line; request_id, priority and prompt may be left out."""

    name = "headway-jsonl"
    summary = (
        "JSONL with arrival_s, num_prompt_tokens, num_output_tokens[, request_id, priority, prompt]"
    )
    ticks_per_s = 1
    place_word = "line"

    def score(self, head: Head) -> float:
        """Share of the required keys that the first line has."""
        if not head.first_line.startswith("{"):
            return 0.0
        try:
            return _NAMES.score(list(json.loads(head.first_line)))
        except (ValueError, RecursionError):
            return _UNREADABLE

    def read(self, file: InputFile) -> Iterator[Chunk]:
        """Rows in file order."""
        rows = _rows(file)
        while batch := list(islice(rows, ROWS_PER_CHUNK)):
            yield _chunk(batch)

    def start_text(self, ticks: float) -> str:
        """`ticks` in seconds."""
        return f"{ticks!r} s"


def _rows(file: InputFile) -> Iterator[_Row]:
    with_ids: bool | None = None
    for number, line in enumerate(file.lines(), start=1):
        if line.strip():
            record = _parsed(file.path, number, line)
            if with_ids is None:
                with_ids = "request_id" in record
            _check_ids_alike(file.path, number, record, with_ids)
            yield _row(file.path, number, record)


def _check_ids_alike(path: str, number: int, record: dict[str, Any], with_ids: bool) -> None:
    """Row numbers and given ids in one file could collide, so it is all rows or none."""
    if ("request_id" in record) != with_ids:
        state = "is missing" if with_ids else "is there, but not in the rows before"
        what = f"key 'request_id' {state}; all rows must have one, or none"
        raise bad_place(path, f"line {number}", what)


def _parsed(path: str, number: int, line: str) -> dict[str, Any]:
    place = f"line {number}"
    try:
        record = json.loads(line, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        what = f"this is no JSON ({error.msg} at column {error.colno}); each line must be an object"
        raise bad_place(path, place, what) from None
    except (ValueError, RecursionError) as error:
        raise bad_place(path, place, f"this is no record: {error}") from None
    if not isinstance(record, dict):
        raise bad_place(path, place, f"{shown(record)} is wrong; each line must be an object")
    _NAMES.check(path, place, "key", list(record))
    return record


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"key {repeated!r} occurs twice; each must occur once")
    return record


def _row(path: str, number: int, record: dict[str, Any]) -> _Row:
    return (
        number,
        _seconds(path, number, record["arrival_s"]),
        _integer(path, number, record, "num_prompt_tokens"),
        _integer(path, number, record, "num_output_tokens"),
        _integer(path, number, record, "priority") if "priority" in record else 0,
        _integer(path, number, record, "request_id") if "request_id" in record else None,
        _prompt(path, number, record),
    )


def _seconds(path: str, number: int, value: object) -> float:
    if type(value) in (int, float):
        try:
            seconds = float(value)  # type: ignore[arg-type]
        except OverflowError:
            seconds = math.inf
        if 0 <= seconds < math.inf:
            return seconds
    raise bad_value(path, f"line {number}", "arrival_s", value, SECONDS_RIGHT)


_LIMITS = {
    "num_prompt_tokens": (0, MAX_NUM_TOKENS, COUNT_RIGHT),
    "num_output_tokens": (0, MAX_NUM_TOKENS, COUNT_RIGHT),
    "priority": (-(2**63), 2**63 - 1, INTEGER_RIGHT),
    "request_id": (0, 2**63 - 1, ID_RIGHT),
}


def _integer(path: str, number: int, record: dict[str, Any], field: str) -> int:
    lowest, highest, right = _LIMITS[field]
    value = record[field]
    if type(value) is int and lowest <= value <= highest:
        return value
    raise bad_value(path, f"line {number}", field, value, right)


def _prompt(path: str, number: int, record: dict[str, Any]) -> Prompt:
    segments = record.get("prompt", [])
    if not (isinstance(segments, list) and all(isinstance(each, list) for each in segments)):
        raise bad_value(path, f"line {number}", "prompt", segments, _PROMPT_RIGHT)
    prompt: Prompt = tuple(tuple(each) for each in segments)
    fault = prompt_fault(prompt, record["num_prompt_tokens"]) if prompt else None
    if fault is not None:
        raise bad_place(path, f"line {number}, prompt", fault)
    return prompt


def _chunk(rows: list[_Row]) -> Chunk:
    lines, arrivals, prompt_tokens, output_tokens, priorities, ids, prompts = zip(
        *rows, strict=True
    )
    return Chunk(
        places=np.array(lines, dtype=np.int64),
        times=np.array(arrivals, dtype=np.float64),
        num_prompt_tokens=np.array(prompt_tokens, dtype=np.int64),
        num_output_tokens=np.array(output_tokens, dtype=np.int64),
        priority=np.array(priorities, dtype=np.int64),
        request_id=None if ids[0] is None else np.array(ids, dtype=np.int64),
        prompts=prompts,
    )
