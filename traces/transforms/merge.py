"""Several traces as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from traces.errors import TraceError
from traces.labels import Labels
from traces.prompt_table import PromptTable
from traces.request import NO_PARENT
from traces.source import TraceSource
from traces.trace import Trace


def merge(
    traces: Sequence[Trace], tenants: Sequence[str | None] | None = None, *, shared: bool = False
) -> Trace:
    """The requests of all traces at their own times, numbered anew from 0 in order of arrival.

    Requests of different traces share no content and no session, even if ids are equal: segment
    and session ids get the trace's place in front. With `shared`, equal segment ids are equal
    content. `tenants` names the sender of all requests of each trace; None leaves them.

    Raises:
        TraceError: no trace, or another number of tenants.
    """
    names = [None] * len(traces) if tenants is None else list(tenants)
    if not traces or len(names) != len(traces):
        raise TraceError(f"merge: {len(traces)} traces and {len(names)} tenants; give one each")
    arrivals = np.concatenate([trace.arrival_s for trace in traces])
    place = np.repeat(np.arange(len(traces)), [len(trace) for trace in traces])
    old_ids = np.concatenate([trace.request_id for trace in traces])
    new_ids = np.empty(len(arrivals), dtype=np.int64)
    new_ids[np.lexsort((old_ids, place, arrivals))] = np.arange(len(arrivals))
    parts, start = [], 0
    for index, (trace, tenant) in enumerate(zip(traces, names, strict=True)):
        ids = new_ids[start : start + len(trace)]
        parts.append(_columns(trace, ids, "" if shared else f"{index}/", tenant))
        start += len(trace)
    columns = {name: _joined(name, [part[name] for part in parts], traces) for name in parts[0]}
    return Trace.from_columns(**columns, source=_source(traces))


def _columns(trace: Trace, ids: Any, prefix: str, tenant: str | None) -> dict[str, Any]:
    columns = trace.columns() | {"request_id": ids}
    number_of = dict(zip(trace.request_id.tolist(), ids.tolist(), strict=True))
    if trace.parent_id is not None:
        columns["parent_id"] = np.array(
            [number_of.get(parent, NO_PARENT) for parent in trace.parent_id.tolist()]
        )
    if trace.session_id is not None:
        names = [f"{prefix}{name}" for name in trace.session_id.names]
        columns["session_id"] = Labels(trace.session_id.codes, names)
    if tenant is not None:
        columns["tenant"] = Labels(np.zeros(len(trace), dtype=np.int64), (tenant,))
    if trace.prompts is not None:
        columns["prompts"] = _renamed(trace.prompts, prefix, number_of)
    return columns


def _renamed(table: PromptTable, prefix: str, number_of: dict[int, int]) -> PromptTable:
    """The same prompts under names that no other trace uses; outputs follow their requests."""
    names = [_new_name(name, prefix, number_of) for name in table.names]
    if not prefix:
        return PromptTable(table.offsets, table.ids, table.lengths, table.is_text, names)
    integers, place = np.unique(table.ids[~table.is_text], return_inverse=True)
    ids = table.ids.copy()
    ids[~table.is_text] = len(names) + place
    names += [f"{prefix}{number}" for number in integers.tolist()]
    return PromptTable(table.offsets, ids, table.lengths, np.ones(len(ids), dtype=bool), names)


def _new_name(name: str, prefix: str, number_of: dict[int, int]) -> str:
    kind, _, rest = name.partition(":")
    if kind == "out" and rest.isdecimal() and int(rest) in number_of:
        return f"out:{number_of[int(rest)]}"
    return f"{prefix}{name}"


_ABSENT: dict[str, Any] = {
    "prompts": PromptTable.empty,
    "session_id": Labels.none,
    "tenant": Labels.none,
    "parent_id": lambda number: np.full(number, NO_PARENT),
    "think_time_s": lambda number: np.full(number, np.nan),
    "lora_id": lambda number: np.zeros(number, dtype=np.int64),
}


def _joined(name: str, columns: list[Any], traces: Sequence[Trace]) -> Any:
    if all(column is None for column in columns):
        return None
    filled = [
        _ABSENT[name](len(trace)) if column is None else column
        for column, trace in zip(columns, traces, strict=True)
    ]
    if name == "prompts":
        return PromptTable.concatenate(filled)
    if name in ("session_id", "tenant"):
        return Labels.concatenate(filled)
    return np.concatenate(filled)


def _source(traces: Sequence[Trace]) -> TraceSource:
    sources = [trace.source for trace in traces]
    return replace(
        TraceSource(),
        name=" + ".join(source.name for source in sources),
        format="merged",
        num_rows_read=sum(source.num_rows_read for source in sources),
        dropped={
            f"{source.name}: {reason}": count
            for source in sources
            for reason, count in source.dropped.items()
        },
        warnings=tuple(warning for source in sources for warning in source.warnings),
        transforms=(f"merge({len(traces)} traces)",),
    )
