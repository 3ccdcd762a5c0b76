"""Rows of a run in their final order, handed to a sink as soon as nothing can come before them.

Requests go by id; steps and gaps by the end of their step, then replica, then step. A step's row
can go once all replicas are past its end. A request's row can go once those of all requests with a
smaller id have gone: until then it waits in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from sim.records import STEP_COLUMNS, Records
from sim.run_result import Columns

IntArray = npt.NDArray[np.int64]

_REQUESTS_AT_ONCE = 1 << 16


class RowSink(Protocol):
    """Takes the rows of one run, in their final order."""

    @property
    def is_early(self) -> bool:
        """Whether rows should come while the run goes on, not all at its end."""

    def add_requests(self, rows: Columns) -> None:
        """Take the next requests."""

    def add_steps(self, rows: Columns) -> None:
        """Take the next steps."""

    def add_gaps(self, rows: Columns) -> None:
        """Take the next gaps."""

    def tables(self) -> tuple[Columns, Columns, Columns]:
        """All requests, steps and gaps, when no more come."""


class MemorySink:
    """Keeps the tables of a run in memory.

    `is_early` changes nothing in them: putting a few rows in order at a time is quicker.
    """

    def __init__(self, *, is_early: bool = True) -> None:
        self.is_early = is_early
        self._requests: list[Columns] = []
        self._steps: list[Columns] = []
        self._gaps: list[Columns] = []

    def add_requests(self, rows: Columns) -> None:
        """Take the next requests."""
        self._requests.append(rows)

    def add_steps(self, rows: Columns) -> None:
        """Take the next steps."""
        self._steps.append(rows)

    def add_gaps(self, rows: Columns) -> None:
        """Take the next gaps."""
        self._gaps.append(rows)

    def tables(self) -> tuple[Columns, Columns, Columns]:
        """What was taken."""
        return _joined(self._requests), _joined(self._steps), _joined(self._gaps)


class HandOver:
    """Takes rows away from `records` and hands them to `sink` in order.

    `request_ids` are the ids of all requests that may come, ascending.
    """

    def __init__(self, records: Records, sink: RowSink, request_ids: IntArray) -> None:
        self.is_early = sink.is_early
        self._records = records
        self._sink = sink
        self._request_ids = request_ids
        self._num_requests_gone = 0
        self._requests: list[Columns] = []
        self._num_requests_wanted = _REQUESTS_AT_ONCE
        self._steps: list[Columns] = []
        self._gaps: list[Columns] = []

    def settle(self, before_s: float) -> None:
        """Hand over what is settled, given that all steps which end before `before_s` are there."""
        steps = in_time([*self._steps, *self._records.steps.take()])
        num_settled = int(np.searchsorted(steps["end_s"], before_s, "left"))
        self._steps = [_slice(steps, num_settled, None)]
        steps = _slice(steps, 0, num_settled)
        self._settle_gaps(steps)
        self._sink.add_steps(steps)
        self._settle_requests()

    def finish(self) -> None:
        """Hand over all that is left: no more rows come."""
        steps = in_time([*self._steps, *self._records.steps.take()])
        gaps = self._records.gaps.joined([*self._gaps, *self._records.gaps.take()])
        self._sink.add_gaps(_take(gaps, _gap_order(gaps, _gap_ends_s(gaps, steps))))
        self._sink.add_steps(steps)
        requests = self._records.requests.joined([*self._requests, *self._records.requests.take()])
        order = np.argsort(requests["request_id"], kind="stable")
        self._sink.add_requests(_take(requests, order))

    def _settle_gaps(self, steps: Columns) -> None:
        """Gaps of the given steps; others wait for theirs."""
        gaps = self._records.gaps.joined([*self._gaps, *self._records.gaps.take()])
        ends_s = _gap_ends_s(gaps, steps)
        order = _gap_order(gaps, ends_s)
        num_settled = int((ends_s < inf).sum())
        self._gaps = [_take(gaps, order[num_settled:])]
        self._sink.add_gaps(_take(gaps, order[:num_settled]))

    def _settle_requests(self) -> None:
        """Requests up to the first one that is still on its way."""
        self._requests += self._records.requests.take()
        num_waiting = sum(len(rows["request_id"]) for rows in self._requests)
        if num_waiting < self._num_requests_wanted:
            return
        rows = self._records.requests.joined(self._requests)
        rows = _take(rows, np.argsort(rows["request_id"], kind="stable"))
        gone = self._num_requests_gone
        expected = self._request_ids[gone : gone + num_waiting]
        differ = np.flatnonzero(rows["request_id"] != expected)
        num_settled = int(differ[0]) if len(differ) else num_waiting
        self._sink.add_requests(_slice(rows, 0, num_settled))
        self._requests = [_slice(rows, num_settled, None)]
        self._num_requests_gone += num_settled
        # Those that wait are not looked through again before they have become twice as many.
        self._num_requests_wanted = max(_REQUESTS_AT_ONCE, 2 * (num_waiting - num_settled))


def in_time(chunks: Sequence[Columns]) -> Columns:
    """All steps of the pieces by their end, then replica, then step."""
    chunks = [chunk for chunk in chunks if len(chunk["end_s"])]
    keys = [_key(chunks, name) for name in ("end_s", "replica", "step")]
    if _ascend(*keys):
        one = chunks[0] if len(chunks) == 1 else None
        return one or {name: _key(chunks, name) for name in STEP_COLUMNS}
    # A stable sort keeps the order of replicas and steps among equals.
    is_by_replica = _ascend(*keys[1:])
    order = np.argsort(keys[0], kind="stable") if is_by_replica else np.lexsort(keys[::-1])
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return {name: _placed(chunks, name, place) for name in STEP_COLUMNS}


def _key(chunks: Sequence[Columns], name: str) -> npt.NDArray[Any]:
    return np.concatenate([np.empty(0, STEP_COLUMNS[name]), *(c[name] for c in chunks)])


def _placed(chunks: Sequence[Columns], name: str, place: npt.NDArray[np.intp]) -> npt.NDArray[Any]:
    """A column with every row at its place; the chunks are long, so they are copied once."""
    column = np.empty(len(place), STEP_COLUMNS[name])
    start = 0
    for chunk in chunks:
        rows = chunk[name]
        column[place[start : start + len(rows)]] = rows
        start += len(rows)
    return column


def _gap_ends_s(gaps: Columns, steps: Columns) -> npt.NDArray[np.float64]:
    """When the step of each gap ended; infinity where the step is not among these."""
    ends_s = np.full(len(gaps["step"]), inf)
    for replica in np.unique(gaps["replica"]).tolist():
        mine = np.flatnonzero(gaps["replica"] == replica)
        here = np.flatnonzero(steps["replica"] == replica)
        numbers, wanted = steps["step"][here], gaps["step"][mine]
        if not len(numbers):
            continue
        at = np.minimum(np.searchsorted(numbers, wanted), len(numbers) - 1)
        hits = numbers[at] == wanted
        ends_s[mine[hits]] = steps["end_s"][here[at[hits]]]
    return ends_s


def _gap_order(gaps: Columns, ends_s: npt.NDArray[np.float64]) -> npt.NDArray[np.intp]:
    return np.lexsort((gaps["request_id"], gaps["step"], gaps["replica"], ends_s))


def _ascend(*keys: npt.NDArray[Any]) -> bool:
    """Whether rows are in the order of these keys, the first one counting most."""
    is_behind = np.zeros(max(len(keys[0]) - 1, 0), dtype=np.bool_)
    for key in reversed(keys):
        is_behind = (key[:-1] > key[1:]) | ((key[:-1] == key[1:]) & is_behind)
    return not is_behind.any()


def _joined(chunks: list[Columns]) -> Columns:
    """Pieces as one table, each column's pieces let go once they are copied."""
    if len(chunks) == 1:
        return chunks[0]
    parts = [dict(chunk) for chunk in chunks]
    return {name: np.concatenate([part.pop(name) for part in parts]) for name in chunks[0]}


def _take(columns: Columns, order: Any) -> Columns:
    return {name: column[order] for name, column in columns.items()}


def _slice(columns: Columns, start: int, stop: int | None) -> Columns:
    return {name: column[start:stop] for name, column in columns.items()}
