"""The order of requests that a queue policy gives, as the scheduler needs it."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterable, Iterator
from math import isnan
from typing import Any

from policies import (
    LevelledPolicy,
    PolicyError,
    QueuedRequestView,
    QueuePolicy,
    TrackingPolicy,
    failed,
)
from sim.scheduler.request import Request
from sim.scheduler.request_queue import KeyedRequestQueue, RequestQueue

OrderKey = tuple[Any, ...]


class PolicyOrder:
    """A policy over `Request`s, each seen through `view`; ties go by arrival, then by id."""

    def __init__(
        self, policy: QueuePolicy, view: Callable[[Request], QueuedRequestView], name: str
    ) -> None:
        self.policy = policy
        self.view = view
        self._name = name

    @property
    def tracking(self) -> TrackingPolicy | None:
        """The policy, if it wants to be told what happens."""
        return self.policy if isinstance(self.policy, TrackingPolicy) else None

    @property
    def levelled(self) -> LevelledPolicy | None:
        """The policy, if waiting requests may preempt running ones."""
        return self.policy if isinstance(self.policy, LevelledPolicy) else None

    def key(self, request: Request) -> OrderKey:
        """Its place among others; smaller goes first. Raises `PolicyError` if that is no key."""
        try:
            key = self.policy.key(self.view(request))
        except Exception as error:
            raise failed("scheduling policy", self._name, request.request_id, error) from error
        if type(key) is not tuple or any(isnan(number) for number in key):
            raise PolicyError(
                f"scheduling policy {self._name!r} gave the key {key!r} for request "
                f"{request.request_id}; it must be a tuple of numbers, none of them NaN"
            )
        return (*key, request.arrival_time, request.request_id)

    def make_queue(self) -> RequestQueue:
        """A waiting queue in this order."""
        tracking = self.tracking
        if tracking is None:
            return KeyedRequestQueue(self.key)
        return LaneQueue(self.key, lambda request: tracking.lane(self.view(request)))


class LaneQueue:
    """Smallest key first, for keys that change while requests wait.

    Requests of one lane always have equal keys but for arrival and id: each lane is a heap by
    those, and the keys of the heads are compared anew each time.
    """

    def __init__(
        self, key: Callable[[Request], OrderKey], lane: Callable[[Request], Hashable]
    ) -> None:
        self._key = key
        self._lane_of = lane
        self._lanes: dict[Hashable, list[tuple[OrderKey, Request]]] = {}
        self._length = 0

    def add_request(self, request: Request) -> None:
        """Add to its lane."""
        entry = ((request.arrival_time, request.request_id), request)
        heapq.heappush(self._lanes.setdefault(self._lane_of(request), []), entry)
        self._length += 1

    def prepend_request(self, request: Request) -> None:
        """Add to its lane."""
        self.add_request(request)

    def prepend_requests(self, requests: Iterable[Request]) -> None:
        """Add each to its lane."""
        for request in requests:
            self.add_request(request)

    def peek_request(self) -> Request:
        """The request of the smallest key."""
        return min((heap[0][1] for heap in self._lanes.values()), key=self._key)

    def pop_request(self) -> Request:
        """Take the request of the smallest key."""
        request = self.peek_request()
        lane = self._lane_of(request)
        heapq.heappop(self._lanes[lane])
        if not self._lanes[lane]:
            del self._lanes[lane]
        self._length -= 1
        return request

    def remove_request(self, request: Request) -> None:
        """Take out one request."""
        lane = self._lane_of(request)
        heap = self._lanes.get(lane, [])
        kept = [entry for entry in heap if entry[1] is not request]
        if len(kept) == len(heap):
            return
        self._length -= 1
        heapq.heapify(kept)
        if kept:
            self._lanes[lane] = kept
        else:
            del self._lanes[lane]

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Request]:
        requests = (request for heap in self._lanes.values() for _, request in heap)
        return iter(sorted(requests, key=self._key))
