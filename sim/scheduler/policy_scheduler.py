"""The scheduler in an order that is not vLLM's: that of a queue policy.

`PolicyScheduler` changes three things of the scheduler that it is mixed into: the waiting queues,
which of the two goes first, and the victim of a preemption. The budgets, blocks and the order of
the running queue stay as they are. `TrackingScheduler` tells the policy what happens, too, and
`LevelledScheduler` lets waiting requests preempt running ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import nsmallest

from policies import LevelledPolicy, TrackingPolicy
from sim.scheduler.async_scheduler import AsyncScheduler
from sim.scheduler.config import CacheConfig, SchedulerConfig
from sim.scheduler.leap_scheduler import AsyncLeapScheduler, LeapScheduler
from sim.scheduler.output import AdmissionEnd, EngineCoreOutput, SchedulerOutput
from sim.scheduler.policy_order import PolicyOrder
from sim.scheduler.request import Request, RequestId, RequestStatus
from sim.scheduler.request_queue import RequestQueue
from sim.scheduler.scheduler import Scheduler, Step


class PolicyScheduler(Scheduler):
    """`Scheduler` in the order of a policy; the `policy` of its config says nothing."""

    def __init__(
        self, config: SchedulerConfig, cache_config: CacheConfig, order: PolicyOrder
    ) -> None:
        super().__init__(config, cache_config)
        self._order = order
        self.waiting = order.make_queue()
        self.skipped_waiting = order.make_queue()

    def _choose_victim(self) -> Request:
        return max(self.running.values(), key=self._order.key)

    def _next_waiting_queue(self) -> RequestQueue | None:
        waiting, skipped = self.waiting, self.skipped_waiting
        if waiting and skipped:
            key = self._order.key
            first_waits = key(waiting.peek_request()) < key(skipped.peek_request())
            return waiting if first_waits else skipped
        if skipped:
            return skipped
        return waiting if waiting else None


class TrackingScheduler(PolicyScheduler):
    """`PolicyScheduler` that tells its policy what happens to requests."""

    def __init__(
        self, config: SchedulerConfig, cache_config: CacheConfig, order: PolicyOrder
    ) -> None:
        super().__init__(config, cache_config, order)
        assert order.tracking is not None
        self._told: TrackingPolicy = order.tracking

    def add_request(self, request: Request) -> None:
        """As `Scheduler.add_request`."""
        super().add_request(request)
        self._told.joined(self._order.view(request), is_new=True)

    def _admit(self, request: Request, queue: RequestQueue, step: Step) -> bool:
        is_new = request.status is not RequestStatus.PREEMPTED
        if not super()._admit(request, queue, step):
            return False
        self._told.admitted(self._order.view(request), is_new=is_new)
        return True

    def _preempt_request(self, request: Request) -> None:
        super()._preempt_request(request)
        self._told.joined(self._order.view(request), is_new=False)

    def _free_request(self, request: Request) -> None:
        super()._free_request(request)
        self._told.left(self._order.view(request))

    def _process_output(
        self, output: SchedulerOutput, num_sampled_tokens: Mapping[RequestId, int]
    ) -> list[EngineCoreOutput]:
        results = super()._process_output(output, num_sampled_tokens)
        for result in results:
            view = self._order.view(self.requests[result.request_id])
            self._told.emitted(view, result.num_new_tokens)
        return results


class LevelledScheduler(PolicyScheduler):
    """`PolicyScheduler` in which waiting requests preempt running ones of a larger level.

    They do so where they lack a seat (`max_num_seqs`) or blocks; what was preempted loses its
    progress but for its cached blocks, as in any preemption.
    """

    def __init__(
        self, config: SchedulerConfig, cache_config: CacheConfig, order: PolicyOrder
    ) -> None:
        super().__init__(config, cache_config, order)
        assert order.levelled is not None
        self._levels: LevelledPolicy = order.levelled

    def _schedule_waiting(self, step: Step) -> None:
        self._free_seats(step)
        super()._schedule_waiting(step)

    def _free_seats(self, step: Step) -> None:
        """Preempt for as many of the first that wait as the budget has tokens for."""
        num_free = self.config.max_num_seqs - len(self.running)
        num_tokens_ahead = 0
        for place, request in enumerate(self._first_waiting()):
            if num_tokens_ahead >= min(step.token_budget, step.input_budget):
                return
            if place >= num_free and not self._preempt_for(request, step):
                return
            num_tokens_ahead += request.num_tokens

    def _first_waiting(self) -> list[Request]:
        waiting = [*self.waiting, *self.skipped_waiting]
        can_run = [request for request in waiting if not request.num_stale_output_tokens]
        return nsmallest(self.config.max_num_seqs, can_run, key=self._order.key)

    def _admit(self, request: Request, queue: RequestQueue, step: Step) -> bool:
        while not super()._admit(request, queue, step):
            lacks_blocks = step.admission_end is AdmissionEnd.HEAD_NEEDS_BLOCKS
            if not lacks_blocks or not self._preempt_for(request, step):
                return False
        step.admission_end = step.refused = None
        return True

    def _preempt_for(self, request: Request, step: Step) -> bool:
        """Preempt the running request of the largest key if its level is above this request's."""
        if not self.running:
            return False
        victim = self._choose_victim()
        if self._level(victim) <= self._level(request):
            return False
        if victim in step.new or victim in step.resumed:
            return False  # its level rose while it waited, by a token that was on its way
        del self.running[victim.request_id]
        if victim.request_id in step.num_scheduled_tokens:
            self._refund(victim, step)
        self._preempt_request(victim)
        step.preempted.append(victim)
        return True

    def _level(self, request: Request) -> int:
        return self._levels.level(self._order.view(request))


class TrackingLevelledScheduler(LevelledScheduler, TrackingScheduler):
    """Both: the policy is told what happens, and lets waiting requests preempt running ones."""


class AsyncPolicyScheduler(PolicyScheduler, AsyncScheduler):
    """`PolicyScheduler` over `AsyncScheduler`."""


class AsyncTrackingScheduler(TrackingScheduler, AsyncScheduler):
    """`TrackingScheduler` over `AsyncScheduler`."""


class AsyncLevelledScheduler(LevelledScheduler, AsyncScheduler):
    """`LevelledScheduler` over `AsyncScheduler`."""


class AsyncTrackingLevelledScheduler(TrackingLevelledScheduler, AsyncScheduler):
    """`TrackingLevelledScheduler` over `AsyncScheduler`."""


class LeapPolicyScheduler(PolicyScheduler, LeapScheduler):
    """`PolicyScheduler` over `LeapScheduler`: keys of waiting requests never change."""


class AsyncLeapPolicyScheduler(PolicyScheduler, AsyncLeapScheduler):
    """`PolicyScheduler` over `AsyncLeapScheduler`."""


def create_policy_scheduler(
    config: SchedulerConfig, cache_config: CacheConfig, order: PolicyOrder, *, leap: bool
) -> PolicyScheduler:
    """The scheduler that the policy and `config.async_scheduling` ask for.

    With `leap` it is a `LeapScheduler` as well, which the policy must allow
    (`policies.can_leap`).
    """
    is_async = config.async_scheduling
    kind: type[PolicyScheduler]
    if order.tracking is not None and order.levelled is not None:
        kind = AsyncTrackingLevelledScheduler if is_async else TrackingLevelledScheduler
    elif order.tracking is not None:
        kind = AsyncTrackingScheduler if is_async else TrackingScheduler
    elif order.levelled is not None:
        kind = AsyncLevelledScheduler if is_async else LevelledScheduler
    elif leap:
        kind = AsyncLeapPolicyScheduler if is_async else LeapPolicyScheduler
    else:
        kind = AsyncPolicyScheduler if is_async else PolicyScheduler
    return kind(config, cache_config, order)
