"""Asynchronous scheduling: the next step is decided before the results of the last are known.

A token that is being sampled by a step in flight is an output placeholder: it counts as known
for the next decision, and becomes a token when the step's results are processed.
"""

from __future__ import annotations

from sim.scheduler.config import CacheConfig, SchedulerConfig
from sim.scheduler.output import SchedulerOutput
from sim.scheduler.request import Request, RequestStatus
from sim.scheduler.scheduler import Scheduler


class AsyncScheduler(Scheduler):
    """`Scheduler` for a batch queue of two (vLLM's `AsyncScheduler`)."""

    def _update_after_schedule(self, output: SchedulerOutput) -> None:
        super()._update_after_schedule(output)
        for request_id in output.sampling_req_ids:
            request = self.requests[request_id]
            num_drafts = output.scheduled_spec_decode_tokens.get(request_id, 0)
            request.num_output_placeholders += 1 + num_drafts
            # The drafts of the next step are proposed on the device; here only their number.
            request.num_spec_tokens = self.config.num_speculative_tokens

    def _update_request_with_output(
        self, request: Request, num_sampled: int, is_stale: bool
    ) -> tuple[int, bool]:
        was_running = request.status is RequestStatus.RUNNING
        num_new, stopped = super()._update_request_with_output(request, num_sampled, is_stale)
        if not is_stale:
            request.num_output_placeholders -= num_new
        if was_running:
            # A placeholder's block could not be hashed when it was allocated.
            self.kv_cache_manager.cache_blocks(
                request, request.num_computed_tokens - request.num_output_placeholders
            )
        return num_new, stopped


def create_scheduler(config: SchedulerConfig, cache_config: CacheConfig) -> Scheduler:
    """The scheduler that `config.async_scheduling` asks for."""
    kind = AsyncScheduler if config.async_scheduling else Scheduler
    return kind(config, cache_config)
