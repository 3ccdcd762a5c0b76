"""Drives a scheduler through the engine's iterations over one workload, and writes the rows."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sim.conformance.cases import Case, ConformanceError, Row, make_configs
from sim.scheduler.async_scheduler import create_scheduler
from sim.scheduler.config import CacheConfig, SchedulerConfig
from sim.scheduler.interface import SchedulerInterface
from sim.scheduler.output import EngineCoreOutput, SchedulerOutput
from sim.scheduler.request import Request
from sim.scheduler.scheduler import EngineFailure
from sim.vllm_adapter.tokens import STOP_TOKEN_SEGMENT

SchedulerFactory = Callable[[SchedulerConfig, CacheConfig], SchedulerInterface]

# A request that outgrows the pool alone preempts itself for ever: nothing ends such a replay.
_MAX_ITERATIONS = 1_000_000
_MAX_ITERATIONS_WITHOUT_OUTPUT = 20_000


def replay_case(
    case: Case,
    make_scheduler: SchedulerFactory = create_scheduler,
    *,
    max_idle_iterations: int = _MAX_ITERATIONS_WITHOUT_OUTPUT,
) -> list[Row]:
    """The steps that a scheduler takes for a case's workload.

    Raises `ConformanceError` if the case is malformed, or if nothing was emitted for
    `max_idle_iterations` iterations though requests are left.
    """
    try:
        return Replay(case, make_scheduler, max_idle_iterations).run()
    except (KeyError, TypeError, ValueError) as error:
        raise ConformanceError(
            f"case {case['name']}: not a workload that can be replayed: "
            f"{type(error).__name__}: {error}"
        ) from error


@dataclass(slots=True)
class _Batch:
    """A step in flight, and which of its requests have drafts that nobody proposed."""

    output: SchedulerOutput
    padded: set[Any]


class Replay:
    """One case on one scheduler."""

    def __init__(
        self,
        case: Case,
        make_scheduler: SchedulerFactory = create_scheduler,
        max_idle_iterations: int = _MAX_ITERATIONS_WITHOUT_OUTPUT,
    ) -> None:
        self.name: str = case["name"]
        self.config, cache = make_configs(case["config"])
        self.scheduler = make_scheduler(self.config, cache)
        self.max_idle_iterations = max_idle_iterations
        workload: list[Row] = case["requests"]
        self.by_id: dict[Any, Row] = {spec["id"]: spec for spec in workload}
        self.pending = deque(sorted(workload, key=lambda spec: spec["arrival_step"]))
        self.aborts = _by_step(workload, "abort_step")
        self.mid_aborts = _by_step(workload, "abort_mid")
        self.in_flight: deque[_Batch] = deque()

    def run(self) -> list[Row]:
        """All iterations that did something.

        Raises `ConformanceError` if there is no end, or where vLLM's own engine would fail.
        """
        rows: list[Row] = []
        step = 0
        idle = 0
        while self.pending or self.scheduler.has_requests or self.in_flight:
            if step > _MAX_ITERATIONS or idle > self.max_idle_iterations:
                raise ConformanceError(
                    f"case {self.name}: no end in sight at iteration {step}; unfinished: "
                    f"{sorted(self.scheduler.requests, key=str)}; does a request outgrow the pool?"
                )
            row = self._iterate(step)
            if row is not None:
                rows.append(row)
            idle = 0 if row is None or row.get("emitted") else idle + 1
            step += 1
        return rows

    def _iterate(self, step: int) -> Row | None:
        while self.pending and self.pending[0]["arrival_step"] <= step:
            self.scheduler.add_request(make_request(self.pending.popleft(), self.by_id))
        row: Row = {"step": step}
        self._abort(self.aborts.get(step, ()), row, "aborted")
        worked = self._iterate_async(row) if self.config.async_scheduling else self._step(row)
        return row if worked else None

    def _abort(self, request_ids: Sequence[str], row: Row, field: str) -> None:
        aborted: list[str] = []
        for request_id in request_ids:
            aborted.extend(str(r.request_id) for r in self.scheduler.finish_requests([request_id]))
        if aborted:
            row[field] = aborted

    def _step(self, row: Row) -> bool:
        if not self.scheduler.has_requests:
            return False
        self._process(self._schedule(row), row)
        return True

    def _iterate_async(self, row: Row) -> bool:
        """One turn of vLLM's batch queue of two: fill it before taking a result from it."""
        if not self.scheduler.has_requests and not self.in_flight:
            return False
        if self.scheduler.has_requests:
            batch = self._schedule(row)
            self.in_flight.append(batch)
            if len(self.in_flight) == 1 and (
                batch.output.num_scheduled_tokens or self.scheduler.requests
            ):
                return True
        self._process(self.in_flight.popleft(), row)
        return True

    def _schedule(self, row: Row) -> _Batch:
        scheduler = self.scheduler
        try:
            output = scheduler.schedule()
        except EngineFailure as error:
            raise ConformanceError(f"case {self.name}: {error}") from error
        new, cached = output.scheduled_new_reqs, output.scheduled_cached_reqs
        computed = {data.request_id: data.num_computed_tokens for data in new}
        progress = zip(cached.req_ids, cached.num_computed_tokens, strict=True)
        computed |= {r: tokens for r, tokens in progress if r in cached.resumed_req_ids}
        row["scheduled"] = dict(output.num_scheduled_tokens)
        row["new"] = [data.request_id for data in new]
        row["resumed"] = [r for r in cached.req_ids if r in cached.resumed_req_ids]
        row["computed"] = computed
        row["preempted"] = sorted(output.preempted_req_ids, key=str)
        if output.scheduled_spec_decode_tokens:
            row["drafts"] = dict(output.scheduled_spec_decode_tokens)
        row["running"] = list(scheduler.running)
        row["waiting"] = [request.request_id for request in scheduler.waiting]
        row["skipped"] = [request.request_id for request in scheduler.skipped_waiting]
        row["free_blocks"] = scheduler.kv_cache_manager.num_free_blocks
        # The drafts of an admission are placeholders, which no model accepts.
        return _Batch(output, set(row["new"]) | cached.resumed_req_ids)

    def _process(self, batch: _Batch, row: Row) -> None:
        self._abort(self.mid_aborts.get(row["step"], ()), row, "aborted_mid")
        outputs = self.scheduler.update_from_output(batch.output, self._sample(batch))
        self._propose(batch.output)
        row["emitted"] = {o.request_id: o.num_new_tokens for o in outputs}
        row["finished"] = _finished(outputs)
        row["free_blocks_after"] = self.scheduler.kv_cache_manager.num_free_blocks

    def _sample(self, batch: _Batch) -> dict[Any, int]:
        """Tokens that the batch samples: results come in order, so all before it are known."""
        sampled: dict[Any, int] = {}
        for request_id in batch.output.sampling_req_ids:
            request = self.scheduler.requests.get(request_id)
            if request is None:
                continue  # it ended while in flight
            num_accepted = 0
            num_drafts = batch.output.scheduled_spec_decode_tokens.get(request_id, 0)
            accepts = self.by_id[request_id].get("accepts")
            if num_drafts and accepts and request_id not in batch.padded:
                num_accepted = min(num_drafts, accepts[request.num_output_tokens % len(accepts)])
            sampled[request_id] = 1 + num_accepted
        return sampled

    def _propose(self, output: SchedulerOutput) -> None:
        limit = self.config.num_speculative_tokens
        if not limit or self.config.async_scheduling:
            return
        drafts: dict[Any, int] = {}
        running = self.scheduler.running
        for request_id in output.num_scheduled_tokens:
            proposals = self.by_id[request_id].get("proposals")
            if request_id in running and proposals:
                num_outputs = self.scheduler.requests[request_id].num_output_tokens
                drafts[request_id] = min(limit, proposals[num_outputs % len(proposals)])
        self.scheduler.update_draft_token_ids(drafts)


def _finished(outputs: Sequence[EngineCoreOutput]) -> list[Any]:
    return sorted((o.request_id for o in outputs if o.finish_reason is not None), key=str)


def _by_step(workload: Sequence[Row], key: str) -> dict[int, list[str]]:
    steps: dict[int, list[str]] = {}
    for spec in workload:
        if spec.get(key) is not None:
            steps.setdefault(spec[key], []).append(spec["id"])
    return steps


def make_request(spec: Row, by_id: Mapping[str, Row]) -> Request:
    """A request of a case; `by_id` are all of them, whose outputs a prompt may continue."""
    segments = tuple(
        piece
        for segment, num_tokens in spec["prompt"]
        for piece in _pieces(segment, num_tokens, by_id)
    )
    return Request(
        spec["id"],
        sum(num_tokens for _, num_tokens in segments),
        spec["max_tokens"],
        arrival_time=spec["arrival_time"],
        priority=spec["priority"],
        prompt=segments,
        stop_at=spec.get("eos_at"),
        lora_id=spec.get("lora", 0),
    )


def _pieces(
    segment: int | str, num_tokens: int, by_id: Mapping[str, Row]
) -> tuple[tuple[int | str, int], ...]:
    """A segment's pieces: the stop token is one and the same token wherever it was generated."""
    author = by_id.get(segment[4:]) if isinstance(segment, str) else None
    stop_at = author.get("eos_at") if author else None
    if stop_at is None or num_tokens < stop_at:
        return ((segment, num_tokens),)
    return (
        (segment, stop_at - 1),
        (STOP_TOKEN_SEGMENT, 1),
        (f"{segment}+", num_tokens - stop_at),
    )
