"""Replicas in turn."""

from collections.abc import Sequence

import numpy as np

from policies.router import Router
from policies.views import ReplicaView, RequestView


class RoundRobinRouter:
    """Sends the n-th request that it sees to the n-th replica, modulo their number."""

    def __init__(self) -> None:
        self._num_routed = 0

    def route(self, request: RequestView, replicas: Sequence[ReplicaView]) -> int:
        """Return the id of the next replica in turn."""
        turn = self._num_routed % len(replicas)
        self._num_routed += 1
        return replicas[turn].replica_id


def build(rng: np.random.Generator) -> Router:
    """Make the router; it draws nothing."""
    return RoundRobinRouter()
