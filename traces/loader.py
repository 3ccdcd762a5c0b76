"""From files to a trace: detect, read, drop and count, sort and say so, shift to zero."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from traces.errors import TraceError, bad_place
from traces.formats.base import Chunk
from traces.gathering import Gathering
from traces.reading import Reading, TracePath, open_trace
from traces.request import NO_PARENT
from traces.rows import OnBadRow
from traces.source import TraceSource
from traces.time_units import unit_suspicion
from traces.trace import Trace
from traces.trace_checks import rows_of

ZERO_PROMPT = "zero prompt tokens"
ZERO_OUTPUT = "zero output tokens"
OUTSIDE = "outside the window"


def load(
    path: TracePath,
    format: str = "auto",
    *,
    rebase: bool = True,
    time_unit: str | None = None,
    block_size: int | None = None,
    on_bad_row: OnBadRow = "error",
    window_s: tuple[float, float] | None = None,
) -> Trace:
    """The trace in a file, or in the files of a glob: all its rows, in order of arrival.

    Rows with zero prompt tokens or zero output tokens never were requests to an engine, or failed:
    they are dropped and counted in `source.dropped` (a row with both, under its prompt). Rows that
    come out of time order are sorted, with a warning in `source.warnings`. A request's id is
    its row number from 0, dropped rows counted, unless the file gives ids. A row whose parent was
    dropped, or comes no earlier, begins its session. The rows of a long file lie in temporary
    files (`TMPDIR`), not in memory.

    Args:
        path: the file (.gz and .zst are unpacked), or a pattern of names.
        format: a name of `formats.registry.FORMATS`, or "auto" to detect it from the content.
        rebase: shift times so that the first arrival is 0, and keep the original start in
            `source.start`. False keeps `arrival_s` of Headway's own formats as written.
        time_unit: of times written as numbers: "s", "ms", "us" or "ns"; None for the format's.
        block_size: tokens that a hash id stands for; None to find it from the lengths.
        on_bad_row: "error" raises for the first row that is wrong; "skip" leaves such rows out
            and counts them by reason in `source.dropped`.
        window_s: keep only arrivals from its first second to before its second one, counted from
            the first row of the file; only those rows ever sit in memory.

    Raises:
        TraceError: the file is missing or wrong; names file, line, field and value.
    """
    reading = open_trace(
        path, format, time_unit=time_unit, block_size=block_size, on_bad_row=on_bad_row
    )
    counts = _Counts()
    gathering = Gathering()
    for chunk in _in_window(reading, window_s, counts):
        _gather(reading, gathering, _kept(chunk, counts))
    return _assembled(reading, gathering.joined(), counts, rebase=rebase)


@dataclass(slots=True)
class _Counts:
    """What was met on the way through a file."""

    dropped: dict[str, int] = field(default_factory=dict)
    num_early: int = 0
    first_early: str = ""
    last_time: Any = None
    num_rows: int = 0

    def drop(self, reason: str, number: int) -> None:
        if number:
            self.dropped[reason] = self.dropped.get(reason, 0) + number


def _gather(reading: Reading, gathering: Gathering, chunk: Chunk) -> None:
    try:
        gathering.add(chunk)
    except OSError as error:
        where = tempfile.gettempdir()
        what = f"its rows can't be kept in {where} (TMPDIR) while it is read: {error}"
        raise TraceError(f"{reading.name}: {what}") from None


def _in_window(
    reading: Reading, window_s: tuple[float, float] | None, counts: _Counts
) -> Iterator[Chunk]:
    if window_s is not None and not 0 <= window_s[0] < window_s[1]:
        raise TraceError(
            f"window: {window_s!r} is wrong; it must be two seconds, first the smaller"
        )
    origin = None
    for chunk in reading.chunks():
        _note_order(reading, chunk, counts)
        if window_s is None:
            yield chunk
            continue
        origin = chunk.times[0] if origin is None else origin
        times_s = (chunk.times - origin) / reading.plan.ticks_per_s
        inside = np.flatnonzero((times_s >= window_s[0]) & (times_s < window_s[1]))
        counts.drop(OUTSIDE, len(chunk) - len(inside))
        yield chunk.taken(inside)


def _note_order(reading: Reading, chunk: Chunk, counts: _Counts) -> None:
    """Count rows with an earlier time than the row before them."""
    is_first = counts.last_time is None or not reading.plan.has_common_time
    first = chunk.times[:1] if is_first else [counts.last_time]
    # The same type as the times: nanoseconds since 1970 have more digits than a float.
    before = np.concatenate([np.asarray(first, dtype=chunk.times.dtype), chunk.times[:-1]])
    early = np.flatnonzero(chunk.times < before)
    if early.size and not counts.num_early:
        counts.first_early = f"{reading.format.place_word} {chunk.places[early[0]]}"
    counts.num_early += int(early.size)
    counts.last_time = chunk.times[-1]
    counts.num_rows += len(chunk)


def _kept(chunk: Chunk, counts: _Counts) -> Chunk:
    """The rows that are requests; the others counted by reason."""
    no_prompt = chunk.num_prompt_tokens == 0
    no_output = (chunk.num_output_tokens == 0) & ~no_prompt
    counts.drop(ZERO_PROMPT, int(no_prompt.sum()))
    counts.drop(ZERO_OUTPUT, int(no_output.sum()))
    dropped = no_prompt | no_output
    return chunk.taken(np.flatnonzero(~dropped)) if dropped.any() else chunk


def _assembled(reading: Reading, rows: Chunk | None, counts: _Counts, *, rebase: bool) -> Trace:
    counts.dropped |= reading.bad_rows.num_by_reason
    num_read = counts.num_rows + sum(reading.bad_rows.num_by_reason.values())
    if not num_read:
        raise TraceError(f"{reading.name}: the file has no rows; a trace has at least one request")
    if rows is None:
        listed = ", ".join(f"{count} with {reason}" for reason, count in counts.dropped.items())
        raise TraceError(f"{reading.name}: no usable request among {num_read} rows ({listed})")
    start = rows.times.min() if rebase else rows.times.dtype.type(0)
    arrival_s = (rows.times - start) / reading.plan.ticks_per_s
    ids = _ids(reading, rows)
    parents, warnings = _parents(reading, rows, ids, arrival_s)
    if not rebase:
        arrival_s = _as_written(reading, rows)
    return Trace.from_columns(
        arrival_s,
        rows.num_prompt_tokens,
        rows.num_output_tokens,
        priority=rows.priority,
        request_id=ids,
        prompts=rows.prompts,
        session_id=rows.session_id,
        parent_id=parents,
        think_time_s=_think_times(rows, parents),
        tenant=rows.tenant,
        lora_id=rows.lora_id,
        source=TraceSource(
            name=reading.name,
            format=reading.format.name,
            sha256=reading.sha256,
            num_rows_read=num_read,
            start=_start_text(reading, start) if rebase else None,
            dropped=counts.dropped,
            warnings=(*_warnings(reading, counts, rows), *warnings),
            time_unit=reading.plan.time_unit,
            block_size=reading.plan.block_size,
            reading=reading.describe(),
        ),
    )


def _as_written(reading: Reading, rows: Chunk) -> Any:
    return rows.times if reading.plan.ticks_per_s == 1 else rows.times / reading.plan.ticks_per_s


def _start_text(reading: Reading, ticks: Any) -> str:
    """A time as its user would write it."""
    if reading.plan.time_unit is None:
        return f"{np.datetime64(int(ticks), 'ns')}Z"
    return f"{ticks.item()!r} {reading.plan.time_unit}"


def _think_times(rows: Chunk, parents: Any) -> Any:
    if rows.think_time_s is None or parents is None:
        return None
    return np.where(parents == NO_PARENT, np.nan, rows.think_time_s)


def _ids(reading: Reading, rows: Chunk) -> Any:
    """Ids given, checked to be unique; else row numbers from 0."""
    if rows.request_id is None:
        return rows.rows
    order = np.argsort(rows.request_id, kind="stable")
    ordered = rows.request_id[order]
    repeated = np.flatnonzero(ordered[1:] == ordered[:-1])
    if repeated.size:
        word = reading.format.place_word
        first, second = (rows.places[order[repeated[0] + offset]] for offset in (0, 1))
        what = f"{ordered[repeated[0]]} is taken by {word} {first}; ids must be unique"
        raise bad_place(reading.name, f"{word} {second}, request_id", what)
    return rows.request_id


def _parents(
    reading: Reading, rows: Chunk, ids: Any, arrival_s: Any
) -> tuple[Any, tuple[str, ...]]:
    """Parents that are there and come before; how many were not."""
    if rows.parent_id is None:
        return None, ()
    has_one = rows.parent_id != NO_PARENT
    places = rows_of(ids, rows.parent_id)
    known = has_one & (places >= 0)
    earlier = (arrival_s[places], ids[places])
    comes_before = (earlier[0] < arrival_s) | ((earlier[0] == arrival_s) & (earlier[1] < ids))
    good = known & comes_before
    parents = np.where(good, rows.parent_id, NO_PARENT)
    reasons = {
        "have a parent that is not in the trace": int((has_one & ~known).sum()),
        "come no later than their parent": int((known & ~comes_before).sum()),
    }
    return parents, tuple(
        f"{reading.name}: {number} turns {reason}; they are taken as first turns"
        for reason, number in reasons.items()
        if number
    )


def _warnings(reading: Reading, counts: _Counts, rows: Chunk) -> Iterator[str]:
    yield from (f"{reading.name}: {note}" for note in reading.plan.notes)
    if counts.num_early:
        yield (
            f"{reading.name}: {counts.num_early} of {counts.num_rows} rows have an earlier time "
            f"than the row before (first: {counts.first_early}); the trace was sorted by arrival"
        )
    if reading.bad_rows.first:
        number = sum(reading.bad_rows.num_by_reason.values())
        yield f"{number} bad rows were left out, the first: {reading.bad_rows.first[0]}"
    span = float(rows.times.max() - rows.times.min())
    if span == 0 and len(rows) > 1 and reading.plan.has_arrivals:
        yield f"{reading.name}: all {len(rows)} requests come at the same instant"
    if reading.plan.time_unit is not None:
        suspicion = unit_suspicion(len(rows), span, reading.plan.time_unit)
        if suspicion is not None:
            yield f"{reading.name}: {suspicion}"
