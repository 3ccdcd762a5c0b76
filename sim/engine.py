"""One replica: a SimPy process that schedules, costs, waits and updates, step after step."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass

from simpy.events import Event

from calibration import CostModel, StepShape
from sim.environment import Environment
from sim.records import Records
from sim.scheduler.output import EngineCoreOutput, SchedulerOutput
from sim.scheduler.request import RequestId
from sim.scheduler.scheduler import Scheduler
from sim.sim_request import SimRequest

Steps = Generator[Event, None, None]


@dataclass(frozen=True, slots=True)
class HostOverhead:
    """CPU seconds that the host spends on a step: scheduling, inputs, outputs."""

    per_step_s: float = 0.0
    per_request_s: float = 0.0

    def step_s(self, num_requests: int) -> float:
        """Host time of a step with `num_requests` requests in it."""
        return self.per_step_s + self.per_request_s * num_requests


@dataclass(frozen=True, slots=True)
class Batch:
    """A step on its way: what was decided, what it looks like, when the device has it."""

    output: SchedulerOutput
    shape: StepShape
    start_s: float
    end_s: float
    num_running: int
    num_waiting: int
    kv_blocks_used: int
    num_cached_tokens: int

    @property
    def num_requests(self) -> int:
        """Requests in the step."""
        return len(self.output.num_scheduled_tokens)


class Replica:
    """One engine in simulated time.

    The cycle is the real engine's. Synchronous: schedule, run, update. Asynchronous: two batches
    are kept on their way, so that the next one is decided while the device runs; the host's time
    hides behind the device's, and results are seen one step late.
    """

    def __init__(
        self,
        env: Environment,
        replica_id: int,
        *,
        scheduler: Scheduler,
        cost: CostModel,
        records: Records,
        host: HostOverhead,
        on_end: Callable[[SimRequest], None],
    ) -> None:
        self.env = env
        self.replica_id = replica_id
        self.scheduler = scheduler
        self.requests: dict[RequestId, SimRequest] = {}
        self.num_steps = 0
        self._cost = cost
        self._records = records
        self._host = host
        self._on_end = on_end
        self.num_known_tokens = 0  # prompt and output tokens of requests that have not ended
        self._last_end_s = 0.0  # when the device finished its last batch
        self._last_result_s = -1.0  # when the last step's tokens came out
        self._wake: Event | None = None
        self._stalled = False
        run = self._run_async if scheduler.config.async_scheduling else self._run
        env.process(run())

    def submit(self, request: SimRequest) -> None:
        """Hand a request to the engine, at this instant; the next schedule sees it."""
        self.requests[request.request_id] = request
        self.num_known_tokens += request.num_prompt_tokens
        self.scheduler.add_request(request)
        self._stalled = False
        if self._wake is not None:
            wake, self._wake = self._wake, None
            wake.succeed()

    def _run(self) -> Steps:
        while True:
            if not self._has_work:
                yield self._until_submit()
                continue
            batch = self._schedule()
            if batch is not None:
                yield self.env.at(batch.end_s)
                self._update(batch)

    def _run_async(self) -> Steps:
        in_flight: deque[Batch] = deque()
        while True:
            if self._has_work:
                batch = self._schedule()
                if batch is not None:
                    in_flight.append(batch)
                    host_s = self._host.step_s(batch.num_requests)
                    if host_s:
                        yield self.env.timeout(host_s)
                    if len(in_flight) == 1:
                        continue
            if in_flight:
                batch = in_flight.popleft()
                if batch.end_s > self.env.now:
                    yield self.env.at(batch.end_s)
                self._update(batch)
                self._stalled = False
            elif not self._has_work:
                yield self._until_submit()

    @property
    def _has_work(self) -> bool:
        return self.scheduler.has_requests and not self._stalled

    def _until_submit(self) -> Event:
        self._wake = self.env.event()
        return self._wake

    def _schedule(self) -> Batch | None:
        """Decide a step and put it on the device; None if there is nothing to compute."""
        now = self.env.now
        scheduler = self.scheduler
        output = scheduler.schedule()
        if not output.num_scheduled_tokens:
            # Nothing can change by itself any more, unless something was freed or told.
            self._stalled = not (output.preempted_req_ids or output.finished_req_ids)
            return None
        num_cached_tokens = 0
        for data in output.scheduled_new_reqs:
            self.requests[data.request_id].first_scheduled_s = now
            num_cached_tokens += data.num_computed_tokens
        cached = output.scheduled_cached_reqs
        if cached.resumed_req_ids:
            progress = zip(cached.req_ids, cached.num_computed_tokens, strict=True)
            num_cached_tokens += sum(n for r, n in progress if r in cached.resumed_req_ids)
        shape = self._shape(output)
        ready_s = now + self._host.step_s(len(output.num_scheduled_tokens))
        start_s = max(ready_s, self._last_end_s)
        self._last_end_s = start_s + self._cost.step_time_s(shape)
        return Batch(
            output,
            shape,
            start_s,
            self._last_end_s,
            len(scheduler.running),
            scheduler.num_waiting,
            scheduler.kv_cache_manager.num_used_blocks,
            num_cached_tokens,
        )

    def _shape(self, output: SchedulerOutput) -> StepShape:
        """The batch as a cost model may see it; progress was advanced already."""
        num_decodes = 0
        decode_context_tokens = 0
        chunks: list[tuple[int, int]] = []
        requests = self.requests
        for request_id, num_tokens in output.num_scheduled_tokens.items():
            context_tokens = requests[request_id].num_computed_tokens
            if num_tokens == 1:
                num_decodes += 1
                decode_context_tokens += context_tokens
            else:
                chunks.append((num_tokens, context_tokens - num_tokens))
        return StepShape(
            output.total_num_scheduled_tokens,
            len(output.sampling_req_ids),
            num_decodes,
            decode_context_tokens,
            tuple(chunks),
        )

    def _update(self, batch: Batch) -> None:
        """Process the results of a step that ends now, and record it."""
        output = batch.output
        results = self.scheduler.update_from_output(
            output, dict.fromkeys(output.sampling_req_ids, 1)
        )
        num_emitted = num_first_tokens = num_gaps = num_finished = 0
        now = self.env.now
        for result in results:
            request = self.requests[result.request_id]
            num_emitted += result.num_new_tokens
            if request.num_output_tokens == result.num_new_tokens:
                request.first_token_s = now
                num_first_tokens += 1
            elif request.last_token_s == self._last_result_s:
                num_gaps += 1
            else:
                gap_s = now - request.last_token_s
                self._records.gaps.append((self.replica_id, self.num_steps, request.row_id, gap_s))
            request.last_token_s = now
            if result.finish_reason is not None:
                num_finished += 1
        self.num_known_tokens += num_emitted
        self._last_result_s = now
        self._record_step(batch, num_emitted, num_first_tokens, num_gaps, num_finished)
        if num_finished:
            self._end_finished(results)

    def _record_step(
        self, batch: Batch, num_emitted: int, num_first_tokens: int, num_gaps: int, num_ended: int
    ) -> None:
        shape = batch.shape
        self._records.steps.append(
            (
                self.replica_id,
                self.num_steps,
                batch.start_s,
                batch.end_s,
                shape.num_tokens,
                shape.num_tokens - shape.num_decodes,
                shape.num_decodes,
                batch.num_requests,
                shape.decode_context_tokens,
                batch.num_running,
                batch.num_waiting,
                batch.kv_blocks_used,
                num_emitted,
                num_first_tokens,
                num_gaps,
                len(batch.output.preempted_req_ids),
                num_ended,
                batch.num_cached_tokens,
            )
        )
        self.num_steps += 1

    def _end_finished(self, results: list[EngineCoreOutput]) -> None:
        for result in results:
            if result.finish_reason is None:
                continue
            request = self.requests.pop(result.request_id)
            self.num_known_tokens -= request.num_tokens
            self._records.requests.append(
                request.to_row(self.replica_id, "finished", result.finish_reason)
            )
            self._on_end(request)
