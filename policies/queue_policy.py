"""The queue interface: who is admitted first, and who is preempted first.

A policy is one method, `key`. Smaller keys are admitted first, and the running request of the
largest key is preempted first. Equal keys are settled by arrival and then by request id, so that
every order is total. What a policy may see of a request is a `QueuedRequestView`: never its true
output length.

Two more things can be asked of it. A policy whose keys depend on more than the view of one request
derives from `TrackingPolicy` and is told what happens. A policy that has a `level` also lets a
waiting request preempt running ones of a larger level, where it is kept out only by them.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from math import inf
from typing import Protocol, runtime_checkable

Key = tuple[float, ...]


class QueuedRequestView(Protocol):
    """A request that waits or runs, as a policy may see it."""

    @property
    def request_id(self) -> int:
        """Position in the trace."""
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

    @property
    def tenant(self) -> str | None:
        """Who sent it; None if not recorded."""
        ...

    @property
    def num_served_tokens(self) -> int:
        """Prompt tokens computed or found in the cache, and tokens that it was given, so far.

        It never falls: what is computed again after a preemption counts up to the length of the
        prompt. It changes while the request waits only by results of steps still on their way.
        """
        ...

    @property
    def deadline_s(self) -> float:
        """Arrival plus the study's limit on TTFT; infinite without one."""
        ...

    @property
    def predicted_output_tokens(self) -> float:
        """What the study's predictor says of its output length, at least 1."""
        ...


@dataclass(frozen=True, slots=True)
class QueuedRequestSnapshot:
    """A `QueuedRequestView` as a plain value."""

    request_id: int
    arrival_s: float
    num_prompt_tokens: int
    priority: int = 0
    tenant: str | None = None
    num_served_tokens: int = 0
    deadline_s: float = inf
    predicted_output_tokens: float = 1.0


class QueuePolicy(Protocol):
    """An order of requests.

    One instance serves one replica of one run. It must be deterministic, and without being a
    `TrackingPolicy` its keys may depend on nothing but the view.
    """

    def key(self, request: QueuedRequestView) -> Key:
        """Numbers, none of them NaN, as many for every request; smaller goes first."""
        ...


@runtime_checkable
class LevelledPolicy(Protocol):
    """A `QueuePolicy` that preempts: its keys begin with the level."""

    def key(self, request: QueuedRequestView) -> Key:
        """As `QueuePolicy.key`."""
        ...

    def level(self, request: QueuedRequestView) -> int:
        """A waiting request preempts running ones of a larger level to get in.

        It must never fall while a request is served, or the same two could preempt each other
        without end.
        """
        ...


class TrackingPolicy(ABC):
    """Base of policies with a state: they are told what happens, and keys may change at any time.

    Give it a `key`, and override what else is needed; nothing is done by default. Simulated time
    is stepped, never leapt over, under such a policy.
    """

    @abstractmethod
    def key(self, request: QueuedRequestView) -> Key:
        """As `QueuePolicy.key`."""

    def lane(self, request: QueuedRequestView) -> Hashable:
        """Requests of one lane always have equal keys: they go by arrival.

        To find the first of all, the keys of the first of each lane are compared.
        """
        return request.request_id

    def joined(self, request: QueuedRequestView, *, is_new: bool) -> None:  # noqa: B027
        """A request begins to wait: it arrived, or was preempted."""

    def admitted(self, request: QueuedRequestView, *, is_new: bool) -> None:  # noqa: B027
        """A request stops waiting and runs: for the first time, or after a preemption."""

    def emitted(self, request: QueuedRequestView, num_tokens: int) -> None:  # noqa: B027
        """A request was given tokens."""

    def left(self, request: QueuedRequestView) -> None:  # noqa: B027
        """A request ended, wherever it was."""


KeyFunction = Callable[[QueuedRequestView], Key]


class FunctionQueuePolicy:
    """A plain function of the request, as a `QueuePolicy`."""

    def __init__(self, function: KeyFunction) -> None:
        self._function = function

    def key(self, request: QueuedRequestView) -> Key:
        """Return what the function returns."""
        return self._function(request)


def can_leap(policy: QueuePolicy) -> bool:
    """Whether the order of waiting requests stays as it is while nothing but decoding happens."""
    return not isinstance(policy, TrackingPolicy | LevelledPolicy)
