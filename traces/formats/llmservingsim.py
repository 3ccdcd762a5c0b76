"""LLMServingSim's traces, JSONL: nanoseconds, lengths, and the tokens themselves where written.

Flat rows have input_toks, output_toks, arrival_time_ns and perhaps input_tok_ids; equal leading
blocks of 16 tokens are shared content. Agentic rows are sessions: one arrival and a list
sub_requests, each sent tool_duration_ns after the one before it has ended. (Its newer traces are
Mooncake-shaped, with blocks of 16: see `mooncake`.) Source: github.com/casys-kaist/LLMServingSim.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from hashlib import blake2b
from typing import Any

import numpy as np

from traces.columns import ColumnNames
from traces.files import Head, InputFile
from traces.formats.base import Chunk, Part, Plan, Wanted
from traces.json_rows import Record, RecordColumns, read_jsonl, score_jsonl
from traces.labels import Labels
from traces.prompt_table import PromptTable
from traces.request import NO_PARENT, Prompt, Segment

_FLAT = ColumnNames(
    ("input_toks", "output_toks", "arrival_time_ns"), ("input_tok_ids", "output_tok_ids")
)
_USUAL_BLOCK_SIZE = 16
_NS_RIGHT = "a finite number of nanoseconds >= 0"
_IDS_RIGHT = "a list of input_toks token ids"


class LlmServingSimFormat:
    """Flat rows: nanoseconds, lengths, token ids."""

    name = "llmservingsim"
    summary = "JSONL with input_toks, output_toks, arrival_time_ns[, input_tok_ids]"
    place_word = "line"

    def score(self, head: Head) -> float:
        """Share of the required keys that the first line has."""
        return score_jsonl(_FLAT, head)

    def plan(self, head: Head, wanted: Wanted) -> Plan:
        """Nanoseconds, and blocks of 16 tokens."""
        return Plan(wanted.time_unit or "ns", wanted.block_size or _USUAL_BLOCK_SIZE)

    def read(self, file: InputFile, part: Part) -> Iterator[Chunk]:
        """Rows in file order."""
        size = part.plan.block_size or _USUAL_BLOCK_SIZE
        return read_jsonl(file, _FLAT, part, partial(_typed, size))


def _typed(block_size: int, records: Sequence[Record]) -> Chunk:
    columns = RecordColumns(records)
    return Chunk(
        rows=columns.rows,
        places=columns.places,
        times=columns.seconds("arrival_time_ns", _NS_RIGHT),
        num_prompt_tokens=columns.integers("input_toks"),
        num_output_tokens=columns.integers("output_toks"),
        prompts=PromptTable.from_prompts(_prompt(block_size, record) for record in records),
    )


def _prompt(block_size: int, record: Record) -> Prompt:
    """A segment a block; its id is a digest of all tokens up to the block's end."""
    tokens: Any = record.values.get("input_tok_ids")
    if not tokens:
        return ()
    if not isinstance(tokens, list) or set(map(type, tokens)) - {int}:
        raise record.bad("input_tok_ids", tokens, _IDS_RIGHT)
    if len(tokens) != record.values["input_toks"]:
        what = (
            f"input_tok_ids has {len(tokens)} ids, but input_toks is {record.values['input_toks']}"
        )
        raise record.wrong(what, "input_tok_ids do not fit input_toks")
    digest = blake2b(digest_size=8)
    segments: list[Segment] = []
    for start in range(0, len(tokens), block_size):
        block = tokens[start : start + block_size]
        digest.update(repr(block).encode())
        segments.append((int.from_bytes(digest.digest(), "big") >> 1, len(block)))
    return tuple(segments)


_AGENTIC = ColumnNames(("session_id", "arrival_time_ns", "sub_requests"))
_SUB_RIGHT = "a list of objects with input_toks and output_toks"


class LlmServingSimAgenticFormat:
    """Sessions: the requests of each follow one another after a tool call."""

    name = "llmservingsim-agentic"
    summary = "JSONL with session_id, arrival_time_ns, sub_requests"
    place_word = "line"

    def score(self, head: Head) -> float:
        """Share of the required keys that the first line has."""
        return score_jsonl(_AGENTIC, head)

    def plan(self, head: Head, wanted: Wanted) -> Plan:
        """Nanoseconds."""
        return Plan(wanted.time_unit or "ns")

    def read(self, file: InputFile, part: Part) -> Iterator[Chunk]:
        """The requests of all sessions, in file order."""
        return read_jsonl(file, _AGENTIC, part, _Sessions(part).typed)


class _Sessions:
    """Numbers the requests of sessions one after another."""

    def __init__(self, part: Part) -> None:
        self._next_row = part.first_row
        self._ticks_per_s = part.plan.ticks_per_s

    def typed(self, records: Sequence[Record]) -> Chunk:
        rows = [each for record in records for each in self._requests(record)]
        first = self._next_row
        self._next_row += len(rows)
        numbers = np.arange(first, first + len(rows), dtype=np.int64)
        place, time, prompt, output, session, is_first, think = zip(*rows, strict=True)
        return Chunk(
            rows=numbers,
            places=np.array(place, dtype=np.int64),
            times=np.array(time),
            num_prompt_tokens=np.array(prompt, dtype=np.int64),
            num_output_tokens=np.array(output, dtype=np.int64),
            session_id=Labels.from_values(session),
            parent_id=np.where(is_first, NO_PARENT, numbers - 1),
            think_time_s=np.array(think),
        )

    def _requests(self, record: Record) -> list[tuple[Any, ...]]:
        at = record.seconds("arrival_time_ns", _NS_RIGHT)
        session = str(record.values["session_id"])
        parts: Any = record.values["sub_requests"]
        if not isinstance(parts, list) or not parts or not all(type(p) is dict for p in parts):
            raise record.bad("sub_requests", parts, _SUB_RIGHT)
        rows, pause = [], 0.0
        for index, values in enumerate(parts):
            each = Record(record.row, record.path, record.place, values)
            for key in ("input_toks", "output_toks"):
                if key not in values:
                    raise each.wrong(f"sub_requests {index}: key {key!r} is missing", "wrong keys")
            think_s = pause / self._ticks_per_s if index else np.nan
            prompt, output = each.integer("input_toks"), each.integer("output_toks")
            at += pause
            rows.append((record.place, at, prompt, output, session, index == 0, think_s))
            has_pause = values.get("tool_duration_ns") is not None
            pause = each.seconds("tool_duration_ns", _NS_RIGHT) if has_pause else 0.0
        return rows
