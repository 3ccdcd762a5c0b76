"""What a simulation asks of a scheduler: ours, or vLLM's own behind an adapter."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Protocol

from sim.scheduler.config import CacheConfig, SchedulerConfig
from sim.scheduler.output import EngineCoreOutput, SchedulerOutput
from sim.scheduler.request import Request, RequestId


class KVCacheView(Protocol):
    """How full the KV cache is, in blocks."""

    @property
    def num_free_blocks(self) -> int:
        """Blocks that nobody holds."""

    @property
    def num_used_blocks(self) -> int:
        """Blocks that requests hold."""


class QueueView(Protocol):
    """The requests of a queue, in the order in which they would be taken."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Request]: ...


class SchedulerInterface(Protocol):
    """`Scheduler`, as far as those who drive it may know it (see there)."""

    @property
    def config(self) -> SchedulerConfig:
        """Its options."""

    @property
    def cache_config(self) -> CacheConfig:
        """The options of its KV cache."""

    @property
    def kv_cache_manager(self) -> KVCacheView:
        """Its KV cache."""

    @property
    def requests(self) -> Mapping[RequestId, Request]:
        """Requests that have not ended."""

    @property
    def running(self) -> Collection[RequestId]:
        """Ids of the running requests, in running order."""

    @property
    def waiting(self) -> QueueView:
        """Arrivals and preempted requests."""

    @property
    def skipped_waiting(self) -> QueueView:
        """Those passed over for a reason of their own."""

    @property
    def has_requests(self) -> bool:
        """Whether a step has anything to do."""

    @property
    def num_waiting(self) -> int:
        """Requests not admitted."""

    def add_request(self, request: Request) -> None:
        """Queue a request."""

    def finish_requests(self, request_ids: Iterable[RequestId]) -> list[Request]:
        """Abort requests; returns those that were."""

    def schedule(self) -> SchedulerOutput:
        """Decide a step."""

    def update_from_output(
        self, output: SchedulerOutput, num_sampled_tokens: Mapping[RequestId, int]
    ) -> list[EngineCoreOutput]:
        """Process the results of a step."""

    def update_draft_token_ids(self, num_drafts: Mapping[RequestId, int]) -> None:
        """Take the drafts proposed after a step."""
