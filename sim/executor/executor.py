"""The engine's loop in real time: schedule, build inputs, run the model, update."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from calibration import StepShape
from calibration.bench.step_batch import IntArray
from sim.admission import Admission
from sim.errors import StudyError
from sim.executor.clocks import Clock
from sim.executor.inputs import InputBatch
from sim.executor.runner import ModelRunner
from sim.scheduler.async_scheduler import create_scheduler
from sim.scheduler.config import CacheConfig, SchedulerConfig
from sim.scheduler.output import EngineCoreOutput
from sim.sim_request import SimRequest
from traces import RequestSpec, Trace


class ExecutedStep(NamedTuple):
    """One step as it happened, in seconds of the executor's clock.

    `host_s` passed between the end of the step before (or the arrival that woke the engine) and
    `start_s`, when the model began: on CUDA, when its inputs lay on the device.
    `is_after_idle`: nothing ran before it.
    """

    shape: StepShape
    start_s: float
    end_s: float
    host_s: float
    num_requests: int
    num_preempted: int
    is_after_idle: bool


@dataclass(slots=True)
class ExecutedRun:
    """What happened: finished requests with their instants, by id, and steps in order.

    `tokens` holds the tokens of each request, prompt and output.
    """

    requests: list[SimRequest] = field(default_factory=list)
    steps: list[ExecutedStep] = field(default_factory=list)
    tokens: dict[int, list[int]] = field(default_factory=dict)
    num_refused: int = 0


class Executor:
    """Serves a trace with a scheduler of our own and a real model.

    Raises `StudyError` for options that it does not run: asynchronous scheduling, drafts, LoRA.
    """

    def __init__(
        self,
        scheduler: SchedulerConfig,
        cache: CacheConfig,
        runner: ModelRunner,
        clock: Clock,
    ) -> None:
        if scheduler.async_scheduling or scheduler.num_speculative_tokens:
            raise StudyError("the executor runs neither async_scheduling nor speculative decoding")
        self._scheduler = create_scheduler(scheduler, cache)
        self._inputs = InputBatch(cache.block_size, scheduler.max_model_len)
        self._admission = Admission(scheduler, cache)
        self._runner, self._clock = runner, clock
        self._requests: dict[int, SimRequest] = {}
        self._run = ExecutedRun()
        self._last_s = 0.0  # when the host began to work on the next step

    def serve(self, trace: Trace, vocab_size: int, rng: np.random.Generator) -> ExecutedRun:
        """Serve the trace to its end: requests are taken in at their arrival times.

        The clock begins anew: what was made before, caches and prompts, is no part of serving.
        """
        prompts = PromptTokens(vocab_size, rng)
        waiting = [(spec, prompts.of(spec)) for spec in trace]
        arrivals = iter(waiting)
        self._clock.restart()
        next_arrival = self._take_in(arrivals, next(arrivals, None))
        is_idle = True
        while next_arrival is not None or self._scheduler.requests:
            if not self._scheduler.requests and next_arrival is not None:
                self._clock.wait_until(next_arrival[0].arrival_s)
                is_idle = True
            if is_idle:
                self._last_s = self._clock.now_s()
            next_arrival = self._take_in(arrivals, next_arrival)
            if self._scheduler.requests:
                self._step(is_idle=is_idle)
                is_idle = False
        self._run.requests.sort(key=lambda request: request.row_id)
        return self._run

    def _take_in(
        self,
        arrivals: Iterator[tuple[RequestSpec, IntArray]],
        following: tuple[RequestSpec, IntArray] | None,
    ) -> tuple[RequestSpec, IntArray] | None:
        """Hand every request that has arrived to the scheduler; returns the next one."""
        now_s = self._clock.now_s()
        while following is not None and following[0].arrival_s <= now_s:
            self._submit(*following)
            following = next(arrivals, None)
        return following

    def _submit(self, spec: RequestSpec, prompt: IntArray) -> None:
        if self._admission.refusal(spec.num_prompt_tokens, spec.num_output_tokens) is not None:
            self._run.num_refused += 1
            return
        request = SimRequest(
            spec.request_id,
            spec.num_prompt_tokens,
            spec.num_output_tokens,
            arrival_time=spec.arrival_s,
            priority=spec.priority,
            prompt=spec.prompt,
        )
        self._requests[spec.request_id] = request
        self._inputs.add(spec.request_id, prompt)
        self._scheduler.add_request(request)

    def _step(self, *, is_idle: bool) -> None:
        output = self._scheduler.schedule()
        if not output.num_scheduled_tokens:
            return
        now_s = self._clock.now_s()
        for new in output.scheduled_new_reqs:
            self._requests[_id(new.request_id)].first_scheduled_s = now_s
        batch, sampling = self._inputs.build(output)
        ready = self._runner.prepare(batch)
        start_s = self._clock.now_s()
        tokens = ready()
        end_s = self._clock.now_s()
        self._inputs.append(sampling, tokens)
        results = self._scheduler.update_from_output(output, dict.fromkeys(sampling, 1))
        self._stamp(results, end_s)
        self._run.steps.append(
            ExecutedStep(
                batch.shape,
                start_s,
                end_s,
                start_s - self._last_s,
                len(batch.pieces),
                len(output.preempted_req_ids),
                is_idle,
            )
        )
        self._last_s = end_s

    def _stamp(self, results: list[EngineCoreOutput], now_s: float) -> None:
        for result in results:
            request = self._requests[_id(result.request_id)]
            if request.num_output_tokens == result.num_new_tokens:
                request.first_token_s = now_s
            request.last_token_s = now_s
            if result.finish_reason is not None:
                self._run.tokens[request.row_id] = self._inputs.pop(request.row_id)
                self._run.requests.append(self._requests.pop(request.row_id))


class PromptTokens:
    """Token ids for prompts: random, and the same for equal segments."""

    def __init__(self, vocab_size: int, rng: np.random.Generator) -> None:
        self._vocab_size, self._rng = vocab_size, rng
        self._segments: dict[int | str, IntArray] = {}

    def of(self, spec: RequestSpec) -> IntArray:
        """Return the prompt of a request."""
        if not spec.prompt:
            return self._draw(spec.num_prompt_tokens)
        return np.concatenate([self._segment(name, count) for name, count in spec.prompt])

    def _segment(self, name: int | str, count: int) -> IntArray:
        known = self._segments.get(name)
        have = 0 if known is None else len(known)
        if known is None or have < count:
            more = self._draw(count - have)
            known = more if known is None else np.concatenate([known, more])
            self._segments[name] = known
        return known[:count]

    def _draw(self, count: int) -> IntArray:
        return self._rng.integers(0, self._vocab_size, count, dtype=np.int64)


def _id(request_id: int | str) -> int:
    """Ids of a trace are whole numbers; the scheduler would take names too."""
    return int(request_id)
