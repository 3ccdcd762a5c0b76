"""What is said of requests that wait for nothing that can happen."""

from dataclasses import dataclass

from sim.scheduler.config import CacheConfig


@dataclass(frozen=True, slots=True)
class StuckReplica:
    """A replica that can't go on, as it stands."""

    replica_id: int
    cache: CacheConfig
    num_free_blocks: int
    num_running: int
    num_waiting: int

    def phrase(self, request_id: int, status: str, num_tokens: int) -> str:
        """What one of its requests is, and wants; `num_tokens` are known of it."""
        num_blocks = -(-num_tokens // self.cache.block_size)
        return (
            f"request {request_id} on replica {self.replica_id} is {status} and needs {num_blocks} "
            f"KV blocks, {self.num_free_blocks} of {self.cache.num_usable_blocks} are free "
            f"({self.num_running} running, {self.num_waiting} waiting)"
        )
