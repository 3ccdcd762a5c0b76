"""What a policy may see of a request and of a replica.

A view carries only what a real front end could know when it decides. It has no true output length,
so a policy can't peek. The Protocols let the simulator hand in live views that cost nothing until
they are read; the snapshots are plain values with the same fields, for tests and notebooks.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol


class RequestView(Protocol):
    """A request as it arrives."""

    @property
    def request_id(self) -> int:
        """Position in the trace; the last tie-break everywhere."""
        ...

    @property
    def arrival_s(self) -> float:
        """Arrival, in seconds from the trace's zero."""
        ...

    @property
    def num_prompt_tokens(self) -> int:
        """Prompt length, at least 1."""
        ...

    @property
    def priority(self) -> int:
        """Smaller is more urgent."""
        ...


class ReplicaView(Protocol):
    """A replica at the moment of a routing decision."""

    @property
    def replica_id(self) -> int:
        """Number of the replica, from 0."""
        ...

    @property
    def num_running(self) -> int:
        """Requests in its running queue."""
        ...

    @property
    def num_waiting(self) -> int:
        """Requests that wait there, never started or preempted."""
        ...

    @property
    def num_outstanding_requests(self) -> int:
        """Requests sent there that have not ended."""
        ...

    @property
    def num_outstanding_tokens(self) -> int:
        """Tokens known there and not ended: prompt tokens still to compute plus tokens held."""
        ...


class RequestSnapshot(NamedTuple):
    """A `RequestView` as a plain value: a tuple, since one is made for every request."""

    request_id: int
    arrival_s: float
    num_prompt_tokens: int
    priority: int = 0


@dataclass(frozen=True, slots=True)
class ReplicaSnapshot:
    """A `ReplicaView` as a plain value."""

    replica_id: int
    num_running: int = 0
    num_waiting: int = 0
    num_outstanding_requests: int = 0
    num_outstanding_tokens: int = 0
