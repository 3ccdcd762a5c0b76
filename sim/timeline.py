"""A run as Chrome trace events, for Perfetto (ui.perfetto.dev) and chrome://tracing.

A process a replica: its steps as slices, counters of the batch, the queue and the KV pool, and a
span for each request with its phases inside: waiting (named and coloured by what it mostly waited
for), prefill, decode, and stalls between tokens. Times are in microseconds of simulated time.
Format: "Trace Event Format", Google, 2016: phases X (slice), C (counter), b/e (nested async), M.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sim.errors import ResultError
from sim.run_result import Columns, RunResult
from sim.study.limits import BUDGET, KV, NONE, SEQS, step_causes

Event = dict[str, Any]

MAX_EVENTS = 200_000
_WAITS = {
    NONE: ("waiting: step under way", "grey"),
    BUDGET: ("waiting: token budget", "thread_state_runnable"),
    KV: ("waiting: KV blocks", "terrible"),
    SEQS: ("waiting: sequences", "bad"),
}
"""Name and reserved colour of a wait by its cause; the first: for the step that was running."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """The trace, and how far it goes: `is_cut` if the size limit ended it before `wanted_end_s`."""

    trace: dict[str, Any]
    end_s: float
    wanted_end_s: float
    num_events: int

    @property
    def is_cut(self) -> bool:
        """Whether the size limit cut it."""
        return self.end_s < self.wanted_end_s


def make_timeline(
    run: RunResult, start_s: float = 0.0, end_s: float | None = None, max_events: int = MAX_EVENTS
) -> Timeline:
    """The events of a window of simulated time, at most `max_events`.

    What overlaps the window is in it. Over the limit, the window is cut short at its end.

    Raises:
        ResultError: nothing happened in the window, or not even its first step fits the limit.
    """
    times = [run.steps["end_s"], run.requests["arrival_s"]]
    last_s = max((float(column.max()) for column in times if len(column)), default=0.0)
    wanted_s = last_s if end_s is None else min(end_s, last_s)
    if not start_s <= wanted_s:
        raise ResultError(
            f"timeline: nothing from {start_s:g} s to {wanted_s:g} s; the run ends at {last_s:g} s"
        )
    cut_s = _fitting_end(run, start_s, wanted_s, max_events)
    events = [*_names(run), *_steps(run, start_s, cut_s), *_requests(run, start_s, cut_s)]
    trace = {"traceEvents": events, "displayTimeUnit": "ms", "otherData": _about(run)}
    return Timeline(trace, cut_s, wanted_s, len(events))


def timeline_text(timeline: Timeline) -> str:
    """The trace as JSON text; equal runs give equal text."""
    return json.dumps(timeline.trace, separators=(",", ":"), allow_nan=False) + "\n"


def _about(run: RunResult) -> Mapping[str, str]:
    return {
        "cost_model": str(run.info.cost.get("label", "")),
        "calibrated": str(bool(run.info.cost.get("calibrated"))).lower(),
    }


def _overlaps(
    starts: npt.NDArray[Any], ends: npt.NDArray[Any], start_s: float, end_s: float
) -> npt.NDArray[np.bool_]:
    return np.asarray((starts <= end_s) & (ends >= start_s), dtype=np.bool_)


_EVENTS_A_STEP = 4
_EVENTS_A_REQUEST = 8  # at most, without stalls


def _fitting_end(run: RunResult, start_s: float, end_s: float, max_events: int) -> float:
    """The latest end up to which the events surely fit the limit, among the ends of steps."""
    room = max_events - 4 * len(run.info.replicas)
    if _count(run, start_s, end_s) <= room:
        return end_s
    ends = np.unique(run.steps["end_s"])
    ends = ends[(ends >= start_s) & (ends <= end_s)]
    low, high = 0, len(ends)  # ends[:low] fit
    while low < high:
        middle = (low + high + 1) // 2
        if _count(run, start_s, float(ends[middle - 1])) <= room:
            low = middle
        else:
            high = middle - 1
    if low == 0:
        raise ResultError(
            f"timeline: a limit of {max_events:,} events is too small for one step at {start_s:g} s"
        )
    return float(ends[low - 1])


def _count(run: RunResult, start_s: float, end_s: float) -> int:
    steps = int(_overlaps(run.steps["start_s"], run.steps["end_s"], start_s, end_s).sum())
    requests = int(_in_window(run.requests, start_s, end_s).sum())
    stalls = int(_stall_rows(run, start_s, end_s).sum())
    return _EVENTS_A_STEP * steps + _EVENTS_A_REQUEST * requests + 2 * stalls


def _names(run: RunResult) -> Iterator[Event]:
    for replica in range(len(run.info.replicas)):
        yield _meta("process_name", replica, {"name": f"replica {replica}"})
        yield _meta("process_sort_index", replica, {"sort_index": replica})
        yield _meta("thread_name", replica, {"name": "steps"})


def _meta(name: str, pid: int, args: Mapping[str, Any]) -> Event:
    return {"ph": "M", "name": name, "pid": pid, "tid": 0, "args": dict(args)}


def _steps(run: RunResult, start_s: float, end_s: float) -> Iterator[Event]:
    steps = run.steps
    rows = np.flatnonzero(_overlaps(steps["start_s"], steps["end_s"], start_s, end_s))
    columns = {name: column[rows].tolist() for name, column in steps.items()}
    for index in range(len(rows)):
        row = {name: values[index] for name, values in columns.items()}
        yield from _step(row)


def _step(row: Mapping[str, Any]) -> Iterator[Event]:
    pid, at = row["replica"], _us(row["start_s"])
    prefill = row["num_prefill_tokens"]
    kind = "decode" if not prefill else "mixed" if row["num_decodes"] else "prefill"
    shown = ("step", "num_requests", "num_tokens", "num_prefill_tokens", "num_decodes",
             "num_preempted", "num_finished", "num_cached_tokens")  # fmt: skip
    yield {
        "ph": "X",
        "name": kind,
        "cat": "step",
        "pid": pid,
        "tid": 0,
        "ts": at,
        "dur": max(_us(row["end_s"]) - at, 0.0),
        "args": {name: row[name] for name in shown},
    }
    batch = {"prefill": prefill, "decode": row["num_tokens"] - prefill}
    queue = {"running": row["num_running"], "waiting": row["num_waiting"]}
    yield _counter("batch tokens", pid, at, batch)
    yield _counter("requests", pid, at, queue)
    yield _counter("KV blocks", pid, at, {"used": row["kv_blocks_used"]})


def _counter(name: str, pid: int, at: float, args: Mapping[str, Any]) -> Event:
    return {"ph": "C", "name": name, "pid": pid, "tid": 0, "ts": at, "args": dict(args)}


def _in_window(requests: Columns, start_s: float, end_s: float) -> npt.NDArray[np.bool_]:
    """Requests of a replica that live inside the window; the unfinished live to its end."""
    ends = np.where(np.isnan(requests["last_token_s"]), np.inf, requests["last_token_s"])
    ends = np.where(requests["state"] == "unfinished", np.inf, ends)
    alive = _overlaps(requests["arrival_s"], ends, start_s, end_s)
    return np.asarray(alive & (requests["replica"] >= 0), dtype=np.bool_)


def _requests(run: RunResult, start_s: float, end_s: float) -> Iterator[Event]:
    requests = run.requests
    causes = _Causes(run)
    rows = np.flatnonzero(_in_window(requests, start_s, end_s))
    columns = {name: column[rows].tolist() for name, column in requests.items()}
    for index in range(len(rows)):
        row = {name: values[index] for name, values in columns.items()}
        yield from _request(row, causes, end_s)
    yield from _stalls(run, start_s, end_s)


def _request(row: Mapping[str, Any], causes: "_Causes", window_end_s: float) -> Iterator[Event]:
    """The request's span and its phases one after another; a phase still going ends the window."""
    arrival, first_scheduled = row["arrival_s"], row["first_scheduled_s"]
    end = row["last_token_s"] if row["state"] == "finished" else window_end_s
    scheduled = end if np.isnan(first_scheduled) else first_scheduled
    first_token = end if np.isnan(row["first_token_s"]) else row["first_token_s"]
    shown = ("priority", "num_prompt_tokens", "num_output_tokens", "state", "num_preemptions",
             "num_cached_tokens")  # fmt: skip
    args = {name: row[name] for name in shown}
    end = max(end, arrival)
    yield from _span(row, f"request {row['request_id']}", arrival, end, args=args)
    if scheduled > arrival:
        name, colour = _WAITS[causes.of(row["replica"], arrival, scheduled)]
        yield from _span(row, name, arrival, min(scheduled, end), colour=colour)
    if first_token > scheduled:
        yield from _span(
            row, "prefill", scheduled, min(first_token, end), colour="thread_state_running"
        )
    if end > first_token:
        yield from _span(row, "decode", first_token, end, colour="good")


def _span(
    row: Mapping[str, Any],
    name: str,
    start_s: float,
    end_s: float,
    *,
    args: Mapping[str, Any] | None = None,
    colour: str = "",
) -> Iterator[Event]:
    common = {
        "name": name,
        "cat": "request",
        "id": row["request_id"],
        "pid": row["replica"],
        "tid": 1,
    }
    begin: Event = {"ph": "b", **common, "ts": _us(start_s), "args": dict(args or {})}
    if colour:
        begin["cname"] = colour
    yield begin
    yield {"ph": "e", **common, "ts": _us(end_s)}


def _stall_rows(run: RunResult, start_s: float, end_s: float) -> npt.NDArray[np.bool_]:
    ends = _gap_ends(run)
    return _overlaps(ends - run.gaps["gap_s"], ends, start_s, end_s)


def _gap_ends(run: RunResult) -> npt.NDArray[np.float64]:
    """When the step of each irregular gap ended."""
    order = np.lexsort((run.steps["step"], run.steps["replica"]))
    first = np.searchsorted(run.steps["replica"][order], np.arange(len(run.info.replicas)))
    if not len(order):
        return np.empty(0)
    rows = first[run.gaps["replica"]] + run.gaps["step"]
    return np.asarray(run.steps["end_s"][order][rows], dtype=np.float64)


def _stalls(run: RunResult, start_s: float, end_s: float) -> Iterator[Event]:
    """Gaps between two tokens in which steps of the replica passed the request by."""
    rows = np.flatnonzero(_stall_rows(run, start_s, end_s))
    ends = _gap_ends(run)
    preempted = dict(
        zip(
            run.requests["request_id"].tolist(),
            run.requests["num_preemptions"].tolist(),
            strict=True,
        )
    )
    for i in rows.tolist():
        request = int(run.gaps["request_id"][i])
        name = "stalled: preempted" if preempted.get(request) else "stalled: left out of steps"
        gap = {"request_id": request, "replica": int(run.gaps["replica"][i])}
        begin_s = float(ends[i] - run.gaps["gap_s"][i])
        yield from _span(gap, name, begin_s, float(ends[i]), colour="terrible")


class _Causes:
    """What requests waited for on each replica over a stretch of time."""

    def __init__(self, run: RunResult) -> None:
        steps, causes = run.steps, step_causes(run.steps, run.info.replicas)
        self._by_replica = []
        for replica in range(len(run.info.replicas)):
            rows = np.flatnonzero(steps["replica"] == replica)
            rows = rows[np.argsort(steps["step"][rows])]
            length_s = steps["end_s"][rows] - steps["start_s"][rows]
            sums = [
                np.concatenate([[0.0], np.cumsum(length_s * (causes[rows] == c))]) for c in _WAITS
            ]
            self._by_replica.append((steps["start_s"][rows], np.array(sums)))

    def of(self, replica: int, start_s: float, end_s: float) -> int:
        """The cause that held longest in the steps begun in the stretch; NONE without one."""
        starts, sums = self._by_replica[replica]
        low, high = np.searchsorted(starts, (start_s, end_s))
        held = sums[1:, high] - sums[1:, low]
        return int(np.argmax(held)) + 1 if held.max(initial=0.0) > 0 else NONE


def _us(seconds: float) -> float:
    return round(seconds * 1e6, 3)
