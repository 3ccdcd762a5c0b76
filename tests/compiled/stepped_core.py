"""The compiled scheduler behind the interface that a replay drives: one decision at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from calibration import ConstantCost
from sim.compiled import make_core
from sim.config import EngineConfig
from sim.conformance import Case
from sim.scheduler.config import CacheConfig, SchedulerConfig
from sim.scheduler.output import (
    CachedRequestData,
    EngineCoreOutput,
    NewRequestData,
    SchedulerOutput,
)
from sim.scheduler.request import Request


@dataclass(frozen=True)
class _Named:
    request_id: Any


class SteppedCore:
    """`names` are the ids of the case; the core knows a request by its place in their order."""

    def __init__(self, config: SchedulerConfig, cache: CacheConfig, names: Iterable[str]) -> None:
        self.config = config
        self.cache_config = cache
        self.names = sorted(names)
        self.numbers = {name: number for number, name in enumerate(self.names)}
        engine = EngineConfig(config, cache, "test")
        self.core = make_core(engine, ConstantCost(1.0), stops_at_ends=False)

    def add_request(self, request: Request) -> None:
        prompt = tuple((self._segment(i), n) for i, n in request.prompt)
        self.core.submit(
            0.0,
            self.numbers[request.request_id],
            request.arrival_time,
            request.priority,
            request.num_prompt_tokens,
            request.max_tokens,
            prompt or None,
            request.stop_at or 0,
        )

    def _segment(self, segment: Any) -> Any:
        if isinstance(segment, str) and segment[:4] in ("out:", "own:"):
            number = self.numbers.get(segment[4:])
            return segment if number is None else f"{segment[:4]}{number}"
        return segment

    def finish_requests(self, request_ids: Iterable[str]) -> list[_Named]:
        aborted = [i for i in request_ids if self.core.probe_abort(self.numbers[i])]
        return [_Named(request_id) for request_id in aborted]

    @property
    def has_requests(self) -> bool:
        return self.core.probe_state()[5]

    @property
    def running(self) -> list[str]:
        return self._named(self.core.probe_state()[0])

    @property
    def waiting(self) -> list[_Named]:
        return [_Named(name) for name in self._named(self.core.probe_state()[1])]

    @property
    def skipped_waiting(self) -> list[_Named]:
        return [_Named(name) for name in self._named(self.core.probe_state()[2])]

    @property
    def requests(self) -> dict[str, Any]:
        return {name: SimpleNamespace() for name in self._named(self.core.probe_state()[3])}

    @property
    def kv_cache_manager(self) -> Any:
        return SimpleNamespace(num_free_blocks=self.core.num_free_blocks)

    def _named(self, numbers: Iterable[int]) -> list[str]:
        return [self.names[number] for number in numbers]

    def schedule(self) -> SchedulerOutput:
        before = self.running
        entries, members, num_preempted = self.core.probe_schedule()
        tokens = dict.fromkeys(self._named(members), 1)
        tokens |= {self.names[number]: n for number, n, *_ in entries}
        running = self.running
        order = {name: place for place, name in enumerate(running)}
        tokens = {name: tokens[name] for name in sorted(tokens, key=order.__getitem__)}
        preempted = [name for name in before if name not in order]
        assert len(preempted) == num_preempted
        admitted = [(self.names[i], done, again) for i, _, done, new, again in entries if new]
        new = [NewRequestData(i, (), 0, 0, 0, [], done) for i, done, again in admitted if not again]
        resumed = [(i, done) for i, done, again in admitted if again]
        cached = CachedRequestData(
            [i for i, _ in resumed],
            {i for i, _ in resumed},
            [[] for _ in resumed],
            [done for _, done in resumed],
        )
        total = sum(tokens.values())
        return SchedulerOutput(new, cached, tokens, total, {}, [], [], preempted)

    def update_from_output(
        self, output: SchedulerOutput, sampled: Mapping[Any, int]
    ) -> list[EngineCoreOutput]:
        if not output.num_scheduled_tokens:
            return []
        emitted, ended = self.core.probe_process()
        reasons = {self.names[number]: reason for number, reason in ended}
        return [EngineCoreOutput(name, 1, reasons.get(name)) for name in self._named(emitted)]

    def update_draft_token_ids(self, num_drafts: Mapping[Any, int]) -> None:
        raise AssertionError("the core has no drafts")


def core_of(case: Case) -> Any:
    """What makes the scheduler of a replay of this case."""
    names = [request["id"] for request in case["requests"]]
    return lambda config, cache: SteppedCore(config, cache, names)
