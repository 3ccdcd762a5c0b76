"""The leaping scheduler behind the ordinary interface: one step at a time, the group spelt out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sim.scheduler.config import CacheConfig, SchedulerConfig
from sim.scheduler.leap_scheduler import LeapStep, create_leap_scheduler
from sim.scheduler.output import EngineCoreOutput, SchedulerOutput
from sim.scheduler.request import Request


class SteppedLeap:
    """Drives a `LeapScheduler` as a replay drives a `Scheduler`; leaps are of one step."""

    def __init__(self, config: SchedulerConfig, cache_config: CacheConfig) -> None:
        self.core = create_leap_scheduler(config, cache_config)
        self.num_grouped = 0
        self._steps: dict[int, tuple[LeapStep, list[Any]]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.core, name)

    def add_request(self, request: Request) -> None:
        self.core.add_request(request)

    def finish_requests(self, request_ids: Iterable[Any]) -> list[Request]:
        return self.core.finish_requests(request_ids)

    def schedule(self) -> SchedulerOutput:
        core = self.core
        finished = []
        if core.max_leap(1):
            step = core.leap(1)
            finished, core.finished_req_ids = core.finished_req_ids, []
        else:
            step = core.next_step()
        members = core.member_ids(step) if step.num_decodes else []
        assert len(members) == step.num_decodes
        self.num_grouped += step.num_decodes
        tokens = core._in_running_order(
            {**dict.fromkeys(members, 1), **step.output.num_scheduled_tokens}
        )
        shown = SchedulerOutput(
            step.output.scheduled_new_reqs,
            step.output.scheduled_cached_reqs,
            tokens,
            sum(tokens.values()),
            step.output.scheduled_spec_decode_tokens,
            [*members, *step.output.sampling_req_ids],
            finished or step.output.finished_req_ids,
            step.output.preempted_req_ids,
        )
        self._steps[id(shown)] = (step, members)
        return shown

    def update_from_output(
        self, shown: SchedulerOutput, sampled: Mapping[Any, int]
    ) -> list[EngineCoreOutput]:
        step, members = self._steps.pop(id(shown))
        core = self.core
        if not core._can_group:
            core._in_flight and core._in_flight.popleft()
            return core.update_from_output(step.output, sampled)
        spelt_out = not step.num_decodes
        results, ended = core.process(step)
        got = {result.request_id: result for result in (*results, *ended)}
        if not spelt_out:
            got |= {i: EngineCoreOutput(i, 1) for i in members if i not in got}
        order = {request_id: n for n, request_id in enumerate(shown.num_scheduled_tokens)}
        return sorted(got.values(), key=lambda result: order[result.request_id])
