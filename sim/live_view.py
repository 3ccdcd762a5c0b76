"""What a router sees of a replica while it runs: counts, and no way to the requests behind."""

from __future__ import annotations

from sim.engine import Replica


class LiveReplicaView:
    """A `policies.ReplicaView` that reads the replica when asked."""

    __slots__ = ("__replica", "replica_id")

    def __init__(self, replica: Replica) -> None:
        self.replica_id = replica.replica_id
        self.__replica = replica

    @property
    def num_running(self) -> int:
        """Requests in the running queue."""
        return len(self.__replica.scheduler.running)

    @property
    def num_waiting(self) -> int:
        """Requests that wait there, never started or preempted."""
        return self.__replica.scheduler.num_waiting

    @property
    def num_outstanding_requests(self) -> int:
        """Requests sent there that have not ended."""
        return len(self.__replica.requests)

    @property
    def num_outstanding_tokens(self) -> int:
        """Prompt and output tokens known of requests that have not ended."""
        return self.__replica.num_known_tokens
