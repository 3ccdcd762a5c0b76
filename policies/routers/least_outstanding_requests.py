"""The replica with the fewest requests that have not ended."""

from collections.abc import Sequence

import numpy as np

from policies.router import Router
from policies.views import ReplicaView, RequestView


def _load(replica: ReplicaView) -> tuple[int, int]:
    return replica.num_outstanding_requests, replica.replica_id


class LeastOutstandingRequestsRouter:
    """Join the shortest queue, counted in requests, running ones included."""

    def route(self, request: RequestView, replicas: Sequence[ReplicaView]) -> int:
        """Return the id of the least loaded replica; the smaller id among equals."""
        return min(replicas, key=_load).replica_id


def build(rng: np.random.Generator) -> Router:
    """Make the router; it draws nothing."""
    return LeastOutstandingRequestsRouter()
