"""One replica: a SimPy process that schedules, costs, waits and updates, step after step."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from simpy.events import Event

from calibration import CostModel, StepShape
from sim.drafts import DraftModel
from sim.endless import endless_preemption, max_preemptions_in_vain
from sim.environment import ARRIVAL_RANK, Environment
from sim.errors import SimulationError
from sim.records import Records
from sim.scheduler.interface import SchedulerInterface
from sim.scheduler.output import EngineCoreOutput, SchedulerOutput
from sim.scheduler.request import RequestId
from sim.scheduler.scheduler import EngineFailure
from sim.sim_request import SimRequest
from sim.stuck import StuckReplica
from sim.time_split import SplitClock

Steps = Generator[Event, None, None]


@dataclass(frozen=True, slots=True)
class HostOverhead:
    """CPU seconds that the host spends on a step: scheduling, inputs, outputs."""

    per_step_s: float = 0.0
    per_request_s: float = 0.0

    def step_s(self, num_requests: int) -> float:
        """Host time of a step with `num_requests` requests in it."""
        return self.per_step_s + self.per_request_s * num_requests


class Emitted(NamedTuple):
    """Tokens that came out of a step: all, those that were a request's first, and regular gaps."""

    num_tokens: int
    num_first_tokens: int
    num_gaps: int


@dataclass(slots=True)
class Batch:
    """A step on its way: what was decided, what it looks like, when the device has it."""

    output: SchedulerOutput
    shape: StepShape
    num_requests: int
    start_s: float
    end_s: float
    num_running: int
    num_waiting: int
    kv_blocks_used: int
    num_cached_tokens: int


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
        scheduler: SchedulerInterface,
        cost: CostModel,
        records: Records,
        host: HostOverhead,
        drafts: DraftModel | None = None,
        on_end: Callable[[SimRequest], None],
        explain: CostModel | None = None,
    ) -> None:
        self.env = env
        self.replica_id = replica_id
        self.rank = ARRIVAL_RANK + 1 + replica_id
        self.scheduler = scheduler
        self.requests: dict[RequestId, SimRequest] = {}
        self.num_steps = 0
        self._num_known_tokens = 0
        self._cost = cost
        self._records = records
        self._host = host
        self._drafts = drafts
        self._on_end = on_end
        self._splits = None if explain is None else SplitClock(self.requests, explain)
        self._last_end_s = 0.0  # when the device finishes its last batch
        self._last_result_s = -1.0  # when the last step's tokens came out
        self._last_token_s = -1.0  # when a token came out last
        self._wake: Event | None = None
        self._stalled = False
        self._num_preempted_before = 0  # by empty steps, which have no row of their own
        self._num_preempted_in_vain = 0  # since the last token came out
        self._max_preempted_in_vain = max_preemptions_in_vain(scheduler.config)
        run = self._run_async if scheduler.config.async_scheduling else self._run
        self._process = env.process(run())

    @property
    def num_known_tokens(self) -> int:
        """Prompt and output tokens of requests that have not ended."""
        return self._num_known_tokens

    @property
    def settled_before_s(self) -> float:
        """All steps that end before this instant have their rows."""
        return self.env.now

    def submit(self, request: SimRequest) -> None:
        """Hand a request to the engine, at this instant; the next schedule sees it."""
        self.requests[request.request_id] = request
        self._num_known_tokens += request.num_prompt_tokens
        if self._splits is not None:
            self._splits.arrived(request)
        self.scheduler.add_request(request)
        self._stalled = False
        if self._wake is not None:
            wake, self._wake = self._wake, None
            self.env.trigger(wake, self.rank)

    def close(self) -> list[SimRequest]:
        """Stop here: returns the unfinished requests, without what is still on its way."""
        unfinished = list(self.requests.values())
        for request in unfinished:
            num_in_flight = request.num_in_flight_tokens - request.num_stale_output_tokens
            request.num_computed_tokens -= num_in_flight
            request.num_preempted_tokens -= request.num_stale_output_tokens
            request.num_scheduled_tokens -= request.num_in_flight_tokens
            if self._splits is not None:
                self._splits.ended(request, self.env.now)
        return unfinished

    def stuck(self) -> list[str]:
        """One phrase a request that has not ended, and why it can't go on."""
        scheduler = self.scheduler
        here = StuckReplica(
            self.replica_id,
            scheduler.cache_config,
            scheduler.kv_cache_manager.num_free_blocks,
            len(scheduler.running),
            scheduler.num_waiting,
        )
        return [
            here.phrase(request.row_id, request.status.value, request.num_tokens)
            for request in self.requests.values()
        ]

    # The cycle --------------------------------------------------------------------------

    def _run(self) -> Steps:
        while True:
            if not self._has_work:
                yield self._until_submit()
                continue
            batch = self._schedule()
            if batch is not None:
                yield self.env.at(batch.end_s, self.rank)
                self._update(batch, self.env.now)

    def _run_async(self) -> Steps:
        in_flight: deque[Batch] = deque()
        while True:
            if self._has_work:
                batch = self._schedule()
                if batch is not None:
                    in_flight.append(batch)
                    yield from self._host_works(batch.num_requests)
                    if len(in_flight) == 1:
                        continue
            if in_flight:
                batch = in_flight.popleft()
                if batch.end_s > self.env.now:
                    yield self.env.at(batch.end_s, self.rank)
                self._update(batch, self.env.now)
                self._stalled = False
            elif not self._has_work:
                yield self._until_submit()

    @property
    def _has_work(self) -> bool:
        return self.scheduler.has_requests and not self._stalled

    def _until_submit(self) -> Event:
        self._wake = self.env.event()
        return self._wake

    def _host_works(self, num_requests: int) -> Steps:
        host_s = self._host.step_s(num_requests)
        if host_s:
            yield self.env.at(self.env.now + host_s, self.rank)

    def _schedule(self) -> Batch | None:
        """Decide a step and put it on the device; None if there is nothing to compute."""
        output = self._decide()
        if self._splits is not None:
            self._splits.decided(self.env.now, output)
        self._count_preemptions(output)
        if not output.num_scheduled_tokens:
            self._stall(output)
            return None
        return self._make_batch(output, self._shape(output), len(output.num_scheduled_tokens))

    def _decide(self) -> SchedulerOutput:
        try:
            return self.scheduler.schedule()
        except EngineFailure as error:
            where = f"replica {self.replica_id} at {self.env.now:.6g} s"
            raise SimulationError(f"{where}: {error}") from error

    def _count_preemptions(self, output: SchedulerOutput) -> None:
        self._num_preempted_in_vain += len(output.preempted_req_ids)
        if self._num_preempted_in_vain > self._max_preempted_in_vain:
            raise endless_preemption(
                self.scheduler.config,
                self.scheduler.cache_config,
                self.replica_id,
                self.env.now,
                self._last_token_s,
            )

    def _stall(self, output: SchedulerOutput) -> None:
        """An empty step: nothing can change by itself any more, unless something was freed."""
        self._stalled = not (output.preempted_req_ids or output.finished_req_ids)
        self._num_preempted_before += len(output.preempted_req_ids)

    def _make_batch(self, output: SchedulerOutput, shape: StepShape, num_requests: int) -> Batch:
        """Stamp first admissions, and cost the step. `output` holds every admission in it."""
        now = self.env.now
        scheduler = self.scheduler
        num_cached_tokens = 0
        for data in output.scheduled_new_reqs:
            self.requests[data.request_id].first_scheduled_s = now
            num_cached_tokens += data.num_computed_tokens
        cached = output.scheduled_cached_reqs
        if cached.resumed_req_ids:
            progress = zip(cached.req_ids, cached.num_computed_tokens, strict=True)
            num_cached_tokens += sum(n for r, n in progress if r in cached.resumed_req_ids)
        if self._splits is not None:
            self._splits.planned(output, shape, self._left_out(output, num_requests))
        start_s = max(now + self._host.step_s(num_requests), self._last_end_s)
        self._last_end_s = start_s + self._cost.step_time_s(shape) + self._drafting_s(output)
        return Batch(
            output,
            shape,
            num_requests,
            start_s,
            self._last_end_s,
            len(scheduler.running),
            scheduler.num_waiting,
            scheduler.kv_cache_manager.num_used_blocks,
            num_cached_tokens,
        )

    def _left_out(self, output: SchedulerOutput, num_requests: int) -> list[SimRequest]:
        """Running requests that have no part in the step."""
        if len(self.scheduler.running) == num_requests:
            return []
        scheduled = output.num_scheduled_tokens
        return [self.requests[i] for i in self.scheduler.running if i not in scheduled]

    def _shape(self, output: SchedulerOutput) -> StepShape:
        """The batch as a cost model may see it; progress was advanced already."""
        num_decodes = 0
        decode_context_tokens = 0
        decode_max_context_tokens = 0
        chunks: list[tuple[int, int]] = []
        requests = self.requests
        for request_id, num_tokens in output.num_scheduled_tokens.items():
            context_tokens = requests[request_id].num_computed_tokens
            if num_tokens == 1:
                num_decodes += 1
                decode_context_tokens += context_tokens
                decode_max_context_tokens = max(decode_max_context_tokens, context_tokens)
            else:
                chunks.append((num_tokens, context_tokens - num_tokens))
        return StepShape(
            output.total_num_scheduled_tokens,
            len(output.sampling_req_ids) + sum(output.scheduled_spec_decode_tokens.values()),
            num_decodes,
            decode_context_tokens,
            tuple(chunks),
            decode_max_context_tokens,
        )

    def _update(self, batch: Batch, now: float) -> None:
        """Process the results of a step, known at `now`, and record it."""
        results = self._results(batch.output)
        if self._splits is not None:
            self._splits.processed(now)
        emitted = self._stamp(results, now)
        ended = [result for result in results if result.finish_reason is not None]
        self._record_step(batch, now, emitted, len(ended))
        self._end(ended)

    def _results(self, output: SchedulerOutput) -> list[EngineCoreOutput]:
        scheduler = self.scheduler
        if self._drafts is None:
            return scheduler.update_from_output(output, dict.fromkeys(output.sampling_req_ids, 1))
        results = scheduler.update_from_output(output, self._drafts.sample(output, self.requests))
        if not scheduler.config.async_scheduling:
            drafts = self._drafts.propose(output, scheduler.running, self.requests)
            scheduler.update_draft_token_ids(drafts)
        return results

    def _drafting_s(self, output: SchedulerOutput) -> float:
        """Device time of proposing drafts after a step that samples."""
        if self._drafts is None or not output.sampling_req_ids:
            return 0.0
        return self._drafts.drafting.draft_step_s

    def _stamp(self, results: Sequence[EngineCoreOutput], now: float) -> Emitted:
        """Give tokens their instant; gaps that do not begin with the last step are recorded."""
        num_tokens = num_first = num_gaps = 0
        for result in results:
            request = self.requests[result.request_id]
            num_tokens += result.num_new_tokens
            if request.num_output_tokens == result.num_new_tokens:
                request.first_token_s = now
                num_first += 1
            elif request.last_token_s == self._last_result_s:
                num_gaps += 1
            else:
                gap_s = now - request.last_token_s
                self._records.gaps.append((self.replica_id, self.num_steps, request.row_id, gap_s))
            request.last_token_s = now
        return Emitted(num_tokens, num_first, num_gaps)

    def _record_step(self, batch: Batch, now: float, emitted: Emitted, num_ended: int) -> None:
        shape = batch.shape
        self._records.steps.append(
            (
                self.replica_id,
                self.num_steps,
                batch.start_s,
                now,
                shape.num_tokens,
                shape.num_tokens - shape.num_decodes,
                shape.num_decodes,
                batch.num_requests,
                shape.decode_context_tokens,
                batch.num_running,
                batch.num_waiting,
                batch.kv_blocks_used,
                emitted.num_tokens,
                emitted.num_first_tokens,
                emitted.num_gaps,
                len(batch.output.preempted_req_ids) + self._num_preempted_before,
                num_ended,
                batch.num_cached_tokens,
            )
        )
        self.num_steps += 1
        self._num_preempted_before = 0
        self._num_known_tokens += emitted.num_tokens
        self._last_result_s = now
        if emitted.num_tokens:
            self._tokens_came(now)

    def _tokens_came(self, now: float) -> None:
        self._last_token_s = now
        self._num_preempted_in_vain = 0

    def _end(self, ended: Sequence[EngineCoreOutput]) -> None:
        """Let requests go; all that end with a step have left before anybody hears of one.

        An answer can bring the next request at the same instant, and the router that places it
        must not count those that ended beside it.
        """
        requests = [self.requests.pop(result.request_id) for result in ended]
        self._num_known_tokens -= sum(request.num_tokens for request in requests)
        for request, result in zip(requests, ended, strict=True):
            reason = result.finish_reason or ""
            if self._splits is not None:
                self._splits.ended(request, request.last_token_s)
            self._records.add_request(request, self.replica_id, "finished", reason)
            self._on_end(request)
