"""The routing interface: which replica gets an arriving request."""

from collections.abc import Callable, Sequence
from typing import Protocol

from policies.errors import PolicyError
from policies.views import ReplicaView, RequestView


class Router(Protocol):
    """Chooses a replica for each arriving request.

    One instance serves one run, so it may keep state. It must be deterministic: randomness comes
    from the generator that it is built with and from nowhere else.
    """

    def route(self, request: RequestView, replicas: Sequence[ReplicaView]) -> int:
        """Return the `replica_id` of one of `replicas` (never empty, in order of replica id)."""
        ...


RouteFunction = Callable[[RequestView, Sequence[ReplicaView]], int]


class FunctionRouter:
    """A plain function of the request and the replicas, as a `Router`."""

    def __init__(self, function: RouteFunction) -> None:
        self._function = function

    def route(self, request: RequestView, replicas: Sequence[ReplicaView]) -> int:
        """Return what the function returns."""
        return self._function(request, replicas)


def check_choice(name: str, choice: object, replicas: Sequence[ReplicaView]) -> int:
    """Return `choice` if it is the id of one of `replicas`.

    Raises:
        PolicyError: it is not; the message names the router and what it may return.
    """
    # As a rule an id is a place.
    is_place = type(choice) is int and 0 <= choice < len(replicas)
    if is_place and replicas[choice].replica_id == choice:  # type: ignore[call-overload]
        return choice  # type: ignore[return-value]
    # bool is an int in Python; a router that answers True means something else.
    is_id = isinstance(choice, int) and not isinstance(choice, bool)
    if is_id and any(replica.replica_id == choice for replica in replicas):
        return int(choice)  # type: ignore[call-overload, no-any-return]
    known = ", ".join(str(replica.replica_id) for replica in replicas)
    raise PolicyError(f"router {name!r} returned {choice!r}; it must return a replica id ({known})")
