"""A replica at random."""

from collections.abc import Sequence

import numpy as np

from policies.router import Router
from policies.views import ReplicaView, RequestView


class RandomRouter:
    """Draws a replica uniformly, independent of load."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def route(self, request: RequestView, replicas: Sequence[ReplicaView]) -> int:
        """Return the id of the drawn replica; one draw a request."""
        return replicas[int(self._rng.integers(len(replicas)))].replica_id


def build(rng: np.random.Generator) -> Router:
    """Make the router over the stream `rng`."""
    return RandomRouter(rng)
