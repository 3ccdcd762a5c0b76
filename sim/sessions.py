"""Load by sessions: the next request is sent when the one before it was answered, plus a pause."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

import numpy as np

from sim.config.resolved import SessionLoad
from sim.environment import ARRIVAL_RANK
from sim.sim_request import SimRequest
from traces import Trace, parent_rows, session_numbers

if TYPE_CHECKING:
    from sim.cluster import Cluster


class SessionLoop:
    """Sends the first requests of sessions, and every other one after its parent has ended.

    Without a concurrency, first requests come at the trace's times. With one, that many sessions
    are open at once: one that is over makes place for the next of the trace. A request is sent its
    think time after its parent's last token; a parent that was refused at arrival has ended too.

    Requests due at one instant are sent in the order of their ids, before anything else happens
    then: so an open replay of the times as sent does the same. Only a request without a pause is
    sent within its parent's last step, behind whatever else comes at that instant.
    """

    def __init__(self, cluster: Cluster, load: SessionLoad, trace: Trace) -> None:
        self._cluster = cluster
        self._load = load
        self._trace = trace
        self._think_s = _think_times(trace, load.think_time_s)
        self._rows = {number: row for row, number in enumerate(trace.request_id.tolist())}
        self._children = _children(trace)
        self._session_of = session_numbers(trace).tolist()
        self._first_rows = _first_rows(trace, self._session_of)
        self._num_left = np.bincount(self._session_of).tolist()
        self._next_session = 0
        self._due: list[tuple[float, int, int]] = []
        cluster.when_ended(self._ended)
        self._start()

    def _start(self) -> None:
        concurrency = self._load.concurrency
        if concurrency is None:
            for rows in self._first_rows:
                for row in rows:
                    self._send_at(float(self._trace.arrival_s[row]), row)
            return
        num_first = min(concurrency, len(self._first_rows))
        for place in range(num_first):
            self._open_session(place * self._load.ramp_s / concurrency)

    def _open_session(self, at_s: float, *, at_once: bool = False) -> None:
        """Send the first requests of the next session of the trace, as far apart as recorded."""
        if self._next_session == len(self._first_rows):
            return
        rows = self._first_rows[self._next_session]
        self._next_session += 1
        begin_s = float(self._trace.arrival_s[rows[0]])
        for row in rows:
            offset_s = float(self._trace.arrival_s[row]) - begin_s
            if at_once and not offset_s:
                self._send(row)
            else:
                self._send_at(at_s + offset_s, row)

    def _send_at(self, at_s: float, row: int) -> None:
        heappush(self._due, (at_s, int(self._trace.request_id[row]), row))
        self._cluster.env.at(at_s, ARRIVAL_RANK).callbacks = [lambda _: self._send_due()]

    def _send_due(self) -> None:
        while self._due and self._due[0][0] <= self._cluster.env.now:
            self._send(heappop(self._due)[2])

    def _send(self, row: int) -> None:
        if not self._cluster.send(self._trace[row], self._cluster.env.now):
            # By an event, never at once: a session of refusals must not nest calls.
            self._go_on(row, at_once=False)

    def _ended(self, request: SimRequest) -> None:
        self._go_on(self._rows[request.row_id], at_once=True)

    def _go_on(self, row: int, *, at_once: bool) -> None:
        """A request is over: send what follows it, or make place for another session."""
        now = self._cluster.env.now
        for child in self._children.get(row, ()):
            pause_s = self._think_s[child]
            if pause_s or not at_once:
                self._send_at(now + pause_s, child)
            else:
                self._send(child)
        session = self._session_of[row]
        self._num_left[session] -= 1
        if not self._num_left[session] and self._load.concurrency is not None:
            self._open_session(now, at_once=at_once)


def _think_times(trace: Trace, unrecorded_s: float | None) -> list[float]:
    if trace.think_time_s is None:
        return [unrecorded_s or 0.0] * len(trace)
    filled = np.where(np.isnan(trace.think_time_s), unrecorded_s or 0.0, trace.think_time_s)
    return [float(think) for think in filled]


def _children(trace: Trace) -> dict[int, list[int]]:
    """The rows that follow each row that has any, in order."""
    children: dict[int, list[int]] = {}
    for row, parent in enumerate(parent_rows(trace).tolist()):
        if parent >= 0:
            children.setdefault(parent, []).append(row)
    return children


def _first_rows(trace: Trace, session_of: list[int]) -> list[list[int]]:
    """The rows of each session that follow none, sessions in order of first arrival."""
    rows: list[list[int]] = [[] for _ in range(max(session_of) + 1)]
    for row, parent in enumerate(parent_rows(trace).tolist()):
        if parent < 0:
            rows[session_of[row]].append(row)
    return rows
