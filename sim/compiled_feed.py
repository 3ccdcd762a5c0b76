"""Open load on compiled replicas, without events: requests are handed over at their own times.

Between arrivals a replica can't be influenced, so it is brought up to an arrival when that comes
to it, or to the present when a router looks at it. Requests for which the router looked at nobody
wait until somebody looks, or until their chunk of the trace is over, and are then handed to the
core as columns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from sim.compiled import CompiledFleet
from traces import Trace

if TYPE_CHECKING:
    from traces.request import Prompt

_ROWS_AT_ONCE = 1024
_FEW = 8  # fewer rows are quicker one by one than as columns
_STEPS_AT_ONCE = 100_000  # between two looks at the caller's wish to go on

Route = Callable[[int, float, int, int], int]
"""Replica for a request: id, arrival, prompt tokens, priority."""


_FiveColumns = tuple[Any, Any, Any, Any, Any]


class _Rows:
    """Requests that wait to be handed over, as columns and as lists."""

    def __init__(self, trace: Trace, rows: slice, keep: Any) -> None:
        prompts: list[Prompt] | None = None
        if trace.prompts is not None:
            prompts = [
                p for p, kept in zip(trace.prompts[rows], keep.tolist(), strict=True) if kept
            ]
        self.columns: _FiveColumns = (
            trace.request_id[rows][keep],
            trace.arrival_s[rows][keep],
            trace.priority[rows][keep],
            trace.num_prompt_tokens[rows][keep],
            trace.num_output_tokens[rows][keep],
        )
        self.prompts = prompts
        self.values = [column.tolist() for column in self.columns]

    def __len__(self) -> int:
        return len(self.values[0])


class OpenFeed:
    """Sends what a trace holds to a fleet.

    `route` chooses a replica (None: there is one). `refused` says which requests of a chunk can't
    be served, and `refuse` takes note of one, by its row. `go_on` is asked after every request that
    is routed, else now and then, with the instant that it is: False ends it there. `settled` is
    told an instant before which everything has happened.
    """

    def __init__(
        self,
        fleet: CompiledFleet,
        route: Route | None,
        refused: Callable[[Trace, slice], Any],
        refuse: Callable[[Trace, int], None],
        go_on: Callable[[float], bool],
        *,
        settled: Callable[[float], None],
    ) -> None:
        self._fleet = fleet
        self._route = route
        self._refused = refused
        self._refuse = refuse
        self._go_on = go_on
        self._settled = settled
        self._now_s = 0.0
        self._rows: _Rows | None = None
        self._pending: list[list[int]] = [[] for _ in fleet.replicas]
        for replica in fleet.replicas:
            replica.before_look = self._bring_up

    def run(self, trace: Trace, until_s: float | None) -> None:
        """Send every request that arrives before `until_s`, and let things happen until then."""
        end_s = inf if until_s is None else until_s
        num_sent = int(np.searchsorted(trace.arrival_s, end_s, "left"))
        for start in range(0, num_sent, _ROWS_AT_ONCE):
            rows = slice(start, min(start + _ROWS_AT_ONCE, num_sent))
            is_over = not self._send(trace, rows)
            self._fleet.advance(self._now_s)
            self._settled(self._now_s)
            if is_over or not self._go_on(self._now_s):
                return
        self._drain(end_s)

    def _send(self, trace: Trace, span: slice) -> bool:
        refused = self._refused(trace, span)
        self._rows = rows = _Rows(trace, span, ~refused)
        turned_away = deque((np.flatnonzero(refused) + span.start).tolist())
        if self._route is None:
            self._fleet.cores[0].feed(*rows.columns, rows.prompts)
            goes_on = True
        else:
            places = (np.flatnonzero(~refused) + span.start).tolist()
            goes_on = self._send_routed(trace, rows, places, turned_away, self._route)
        if goes_on:
            self._turn_away(trace, turned_away, span.stop)
            self._now_s = float(trace.arrival_s[span.stop - 1])
        self._rows = None
        return goes_on

    def _turn_away(self, trace: Trace, rows: deque[int], before: int) -> None:
        while rows and rows[0] < before:
            self._refuse(trace, rows.popleft())

    def _send_routed(
        self, trace: Trace, rows: _Rows, places: list[int], turned_away: deque[int], route: Route
    ) -> bool:
        """Send requests one after another; False: it is to end here."""
        goes_on = True
        for row, (request_id, arrival_s, priority, num_prompt_tokens, _) in enumerate(
            zip(*rows.values, strict=True)
        ):
            self._turn_away(trace, turned_away, places[row])
            self._now_s = arrival_s
            if self._fleet.is_ordered:
                self._fleet.advance(arrival_s)
            place = route(request_id, arrival_s, num_prompt_tokens, priority)
            self._pending[place].append(row)
            if self._fleet.is_ordered:
                self._hand_over(place)
            goes_on = self._go_on(arrival_s)
            if not goes_on:
                break
        for place in range(len(self._pending)):
            self._hand_over(place)
        return goes_on

    def _bring_up(self, place: int) -> None:
        """Bring a replica to the present: all before this instant has happened there."""
        self._hand_over(place)
        self._fleet.cores[place].advance(self._now_s)

    def _hand_over(self, place: int) -> None:
        places, rows = self._pending[place], self._rows
        if not places or rows is None:
            return
        self._pending[place] = []
        core = self._fleet.cores[place]
        prompts = rows.prompts
        if len(places) >= _FEW:
            index = np.array(places)
            a, b, c, d, e = rows.columns
            columns = (a[index], b[index], c[index], d[index], e[index])
            core.feed(*columns, None if prompts is None else [prompts[i] for i in places])
            return
        ids, arrivals, priorities, num_prompt_tokens, num_output_tokens = rows.values
        for i in places:
            core.advance(arrivals[i])
            core.submit(
                arrivals[i],
                ids[i],
                arrivals[i],
                priorities[i],
                num_prompt_tokens[i],
                num_output_tokens[i],
                (prompts[i] or None) if prompts is not None else None,
            )

    def _drain(self, end_s: float) -> None:
        """Let all that is left happen, a stretch of time after another."""
        stretch_s = 1.0
        while (next_s := min(core.next_s for core in self._fleet.cores)) < end_s:
            num_steps = self._fleet.num_steps
            until_s = min(next_s + stretch_s, end_s)
            self._fleet.advance(until_s)
            self._settled(until_s)
            if not self._go_on(until_s):
                return
            is_short = self._fleet.num_steps - num_steps < _STEPS_AT_ONCE
            stretch_s *= 2.0 if is_short else 0.5
