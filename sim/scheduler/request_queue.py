"""Queues of requests that wait: first come, first served, or by a key."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from sim.scheduler.config import PolicyName
from sim.scheduler.request import Request


class RequestQueue(Protocol):
    """What the scheduler needs of a waiting queue (vLLM's names)."""

    def add_request(self, request: Request) -> None:
        """Add a request that arrives."""

    def prepend_request(self, request: Request) -> None:
        """Put back a request that was already chosen once, at the head where order allows it."""

    def prepend_requests(self, requests: Iterable[Request]) -> None:
        """Put back several, keeping the order in which they are given."""

    def peek_request(self) -> Request:
        """The next request; the queue must not be empty."""

    def pop_request(self) -> Request:
        """Take the next request; the queue must not be empty."""

    def remove_request(self, request: Request) -> None:
        """Take out a request wherever it stands; nothing happens if it is not there."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Request]:
        """The requests in the order in which they would be popped."""


class FCFSRequestQueue:
    """First come, first served; what is put back goes ahead of the others."""

    def __init__(self) -> None:
        self._queue: deque[Request] = deque()

    def add_request(self, request: Request) -> None:
        """Add at the tail."""
        self._queue.append(request)

    def prepend_request(self, request: Request) -> None:
        """Put at the head."""
        self._queue.appendleft(request)

    def prepend_requests(self, requests: Iterable[Request]) -> None:
        """Put at the head, the first of them first."""
        self._queue.extendleft(reversed(list(requests)))

    def peek_request(self) -> Request:
        """The head."""
        return self._queue[0]

    def pop_request(self) -> Request:
        """Take the head."""
        return self._queue.popleft()

    def remove_request(self, request: Request) -> None:
        """Take out one request."""
        if request in self._queue:
            self._queue.remove(request)

    def __len__(self) -> int:
        return len(self._queue)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._queue)


class KeyedRequestQueue:
    """Smallest key first, always: there is no head to put a request back to."""

    def __init__(self, key: Callable[[Request], tuple[Any, ...]]) -> None:
        self._key = key
        self._heap: list[tuple[tuple[Any, ...], Request]] = []

    def add_request(self, request: Request) -> None:
        """Add by its key."""
        heapq.heappush(self._heap, (self._key(request), request))

    def prepend_request(self, request: Request) -> None:
        """Add by its key."""
        self.add_request(request)

    def prepend_requests(self, requests: Iterable[Request]) -> None:
        """Add each by its key."""
        for request in requests:
            self.add_request(request)

    def peek_request(self) -> Request:
        """The request of the smallest key."""
        return self._heap[0][1]

    def pop_request(self) -> Request:
        """Take the request of the smallest key."""
        return heapq.heappop(self._heap)[1]

    def remove_request(self, request: Request) -> None:
        """Take out one request."""
        self._heap = [entry for entry in self._heap if entry[1] is not request]
        heapq.heapify(self._heap)

    def __len__(self) -> int:
        return len(self._heap)

    def __iter__(self) -> Iterator[Request]:
        return (request for _, request in sorted(self._heap, key=lambda entry: entry[0]))


def priority_key(request: Request) -> tuple[Any, ...]:
    """vLLM's order of requests: urgency, then arrival, then id; a total order."""
    return (request.priority, request.arrival_time, request.request_id)


def create_request_queue(policy: PolicyName) -> RequestQueue:
    """The queue that this policy wants."""
    if policy == "priority":
        return KeyedRequestQueue(priority_key)
    return FCFSRequestQueue()
