"""From a file to a trace: detect, read, drop and count, sort and say so, shift to zero."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from traces.errors import TraceError, bad_place
from traces.files import InputFile
from traces.formats.base import Chunk, Format
from traces.formats.registry import detect, format_named
from traces.request import Prompt
from traces.source import TraceSource
from traces.trace import Trace

ZERO_PROMPT = "zero prompt tokens"
ZERO_OUTPUT = "zero output tokens"


def load(path: str | os.PathLike[str], format: str = "auto", *, rebase: bool = True) -> Trace:
    """The trace in a file: all its rows, in order of arrival.

    Rows with zero prompt tokens or zero output tokens never were requests to an engine: they
    are dropped and counted in `source.dropped` (a row with both, under its prompt). Rows that
    come out of time order are sorted, with a warning in `source.warnings`. A request's id is
    its row number from 0, dropped rows counted, unless the file gives ids.

    Args:
        path: the file.
        format: a name of `formats.registry.FORMATS`, or "auto" to detect it from the content.
        rebase: shift times so that the first arrival is 0, and keep the original start in
            `source.start`. False keeps `arrival_s` of Headway's own formats as written.

    Raises:
        TraceError: the file is missing or wrong; names file, line, field and value.
    """
    with InputFile(path) as file:
        chosen = detect(file.head) if format == "auto" else format_named(format)
        rows = _joined(file.path, list(chosen.read(file)))
        return _assembled(file, chosen, rows, rebase=rebase)


@dataclass(frozen=True, slots=True)
class _Rows:
    """All chunks of a file as one."""

    places: Any
    times: Any
    num_prompt_tokens: Any
    num_output_tokens: Any
    priority: Any
    request_id: Any
    prompts: tuple[Prompt, ...] | None


def _joined(path: str, chunks: Sequence[Chunk]) -> _Rows:
    if not chunks:
        raise TraceError(f"{path}: the file has no rows; a trace has at least one request")
    prompts = None
    if any(chunk.prompts is not None for chunk in chunks):
        prompts = tuple(prompt for chunk in chunks for prompt in chunk.prompts or ())
    return _Rows(
        places=np.concatenate([chunk.places for chunk in chunks]),
        times=np.concatenate([chunk.times for chunk in chunks]),
        num_prompt_tokens=np.concatenate([chunk.num_prompt_tokens for chunk in chunks]),
        num_output_tokens=np.concatenate([chunk.num_output_tokens for chunk in chunks]),
        priority=_optional([chunk.priority for chunk in chunks]),
        request_id=_optional([chunk.request_id for chunk in chunks]),
        prompts=prompts,
    )


def _optional(columns: list[Any]) -> Any:
    return None if columns[0] is None else np.concatenate(columns)


def _assembled(file: InputFile, chosen: Format, rows: _Rows, *, rebase: bool) -> Trace:
    ids = _ids(file.path, chosen, rows)
    kept, dropped = _kept(rows)
    if kept.size == 0:
        counts = ", ".join(f"{count} with {reason}" for reason, count in dropped.items())
        raise TraceError(f"{file.path}: no usable request among {len(ids)} rows ({counts})")
    times = rows.times[kept]
    start = times.min() if rebase else times.dtype.type(0)
    return Trace.from_columns(
        (times - start) / chosen.ticks_per_s,
        rows.num_prompt_tokens[kept],
        rows.num_output_tokens[kept],
        priority=None if rows.priority is None else rows.priority[kept],
        request_id=ids[kept],
        prompts=None if rows.prompts is None else [rows.prompts[index] for index in kept],
        source=TraceSource(
            name=file.path,
            format=chosen.name,
            sha256=file.sha256(),
            num_rows_read=len(ids),
            start=chosen.start_text(start.item()) if rebase else None,
            dropped=dropped,
            warnings=_order_warnings(file.path, chosen, rows),
        ),
    )


def _kept(rows: _Rows) -> tuple[Any, dict[str, int]]:
    """Indices of the rows that are requests, and how many are not, by reason."""
    no_prompt = rows.num_prompt_tokens == 0
    no_output = (rows.num_output_tokens == 0) & ~no_prompt
    counts = {ZERO_PROMPT: int(no_prompt.sum()), ZERO_OUTPUT: int(no_output.sum())}
    kept = np.flatnonzero(~(no_prompt | no_output))
    return kept, {reason: count for reason, count in counts.items() if count}


def _ids(path: str, chosen: Format, rows: _Rows) -> Any:
    """Ids given, checked to be unique; else row numbers from 0."""
    if rows.request_id is None:
        return np.arange(len(rows.places), dtype=np.int64)
    order = np.argsort(rows.request_id, kind="stable")
    ordered = rows.request_id[order]
    repeated = np.flatnonzero(ordered[1:] == ordered[:-1])
    if repeated.size:
        first, second = (rows.places[order[repeated[0] + offset]] for offset in (0, 1))
        what = f"{ordered[repeated[0]]} is taken by {chosen.place_word} {first}"
        place = f"{chosen.place_word} {second}, request_id"
        raise bad_place(path, place, f"{what}; ids must be unique")
    return rows.request_id


def _order_warnings(path: str, chosen: Format, rows: _Rows) -> tuple[str, ...]:
    early = np.flatnonzero(rows.times[1:] < rows.times[:-1]) + 1
    if early.size == 0:
        return ()
    first = f"{chosen.place_word} {rows.places[early[0]]}"
    return (
        f"{path}: {early.size} of {len(rows.times)} rows have an earlier time than the row before"
        f" (first: {first}); the trace was sorted by arrival",
    )
