"""The scheduler: decides, every step, how many tokens of each request to compute.

Follows vLLM's V1 scheduler (0.29.0), decision by decision.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sim.scheduler.config import CacheConfig, SchedulerConfig
from sim.scheduler.kv_cache_manager import KVCache, KVCacheManager
from sim.scheduler.output import (
    AdmissionEnd,
    CachedRequestData,
    EngineCoreOutput,
    NewRequestData,
    SchedulerOutput,
)
from sim.scheduler.request import Request, RequestId, RequestStatus
from sim.scheduler.request_queue import RequestQueue, create_request_queue, priority_key


class UnknownRequestError(KeyError):
    """A request id that the scheduler does not have, or has already."""


class EngineFailure(RuntimeError):  # noqa: N818 -- it is the engine's failure that is simulated
    """An engine with these options and requests would end here: an assertion of its own fails."""


class LoraCapError(EngineFailure):
    """A step decodes more adapters than `max_loras`: vLLM's own assertion ends its engine there."""


@dataclass(slots=True)
class Step:
    """The decision of one step while it is being made."""

    token_budget: int
    input_budget: int
    running: list[Request] = field(default_factory=list)
    new: list[Request] = field(default_factory=list)
    resumed: list[Request] = field(default_factory=list)
    preempted: list[Request] = field(default_factory=list)
    num_scheduled_tokens: dict[RequestId, int] = field(default_factory=dict)
    new_blocks: dict[RequestId, list[int]] = field(default_factory=dict)
    drafts: dict[RequestId, int] = field(default_factory=dict)
    prefill_scheduled: bool = False
    skipped: list[Request] | None = None  # None: nobody was looked at for admission
    refused: Request | None = None
    admission_end: AdmissionEnd | None = None  # where the refused one ended it

    def take(self, request: Request, num_new_tokens: int, new_blocks: list[int]) -> None:
        """Put a request into the step."""
        self.num_scheduled_tokens[request.request_id] = num_new_tokens
        self.new_blocks[request.request_id] = new_blocks

    def running_adapters(self) -> set[int]:
        """Return the LoRA adapters of running requests in the step."""
        return {request.lora_id for request in self.running if request.lora_id}

    def refuse(self, request: Request, reason: AdmissionEnd) -> bool:
        """Note that a request can't be admitted, and why; returns False, to be handed on."""
        self.refused = request
        self.admission_end = reason
        return False


class Scheduler:
    """One replica's scheduler. It knows no clock: it is called, and answers at once.

    `running` is in the order of admission under both policies (a dict, so that leaving it costs
    the same wherever a request stands). `waiting` holds arrivals and preempted requests,
    `skipped_waiting` those passed over for a reason of their own (a LoRA cap, output still in
    flight) and tried again before the others.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        cache_config: CacheConfig,
        kv_cache_manager: KVCache | None = None,
    ) -> None:
        self.config = config
        self.cache_config = cache_config
        self.kv_cache_manager: KVCache = kv_cache_manager or KVCacheManager(cache_config, config)
        self.requests: dict[RequestId, Request] = {}
        self.running: dict[RequestId, Request] = {}
        self.waiting: RequestQueue = create_request_queue(config.policy)
        self.skipped_waiting: RequestQueue = create_request_queue(config.policy)
        self.finished_req_ids: list[RequestId] = []
        self._num_admissions = 0

    # From outside -------------------------------------------------------------------------

    def add_request(self, request: Request) -> None:
        """Queue a request. Raises `UnknownRequestError` if its id is taken."""
        if request.request_id in self.requests:
            raise UnknownRequestError(f"request {request.request_id} was added before")
        self.requests[request.request_id] = request
        self.waiting.add_request(request)

    def finish_requests(self, request_ids: Iterable[RequestId]) -> list[Request]:
        """Abort requests, wherever they stand; blocks are freed at once.

        Unknown and finished ids are passed over. Returns the requests that were aborted. What a
        step in flight still computes for them is ignored when it arrives.
        """
        aborted: list[Request] = []
        for request_id in request_ids:
            request = self.requests.get(request_id)
            if request is None:
                continue
            if request.status is RequestStatus.RUNNING:
                del self.running[request_id]
            else:
                self.waiting.remove_request(request)
                self.skipped_waiting.remove_request(request)
            request.status = RequestStatus.FINISHED_ABORTED
            self._free_request(request)
            aborted.append(request)
        return aborted

    @property
    def has_requests(self) -> bool:
        """Whether a step has anything to do: unfinished requests, or finished ones to report."""
        return bool(self.requests) or bool(self.finished_req_ids)

    @property
    def num_waiting(self) -> int:
        """Requests not admitted, skipped ones included."""
        return len(self.waiting) + len(self.skipped_waiting)

    # The decision ---------------------------------------------------------------------------
    #
    # A request is a progress bar: num_computed_tokens chases num_tokens_with_spec. A step hands
    # out two budgets (tokens to compute, and rows of model input) to requests that lag, those
    # already running first. A prompt lags by its length, a decode by one token, a draft by a few
    # more: there are no phases, and a prompt too long for what is left of the budget is simply
    # cut. Who cannot get blocks for its tokens preempts the least deserving request, which loses
    # its blocks and starts again from its cached prefix. A step that preempted admits nobody.

    def schedule(self) -> SchedulerOutput:
        """Decide the next step and advance the progress of the requests in it.

        Raises `LoraCapError` where vLLM fails: with drafts scheduled ahead, a running request whose
        step in flight could be its last is passed over and does not count towards `max_loras`; if
        its drafts are then rejected, it runs beside the adapter admitted in its place.
        """
        step = Step(self.config.token_budget, self.config.max_num_batched_tokens)
        self._schedule_running(step)
        self._check_adapters(step)
        if not step.preempted:
            self._schedule_waiting(step)
        output = self._make_output(step)
        self._update_after_schedule(output)
        return output

    def _schedule_running(self, step: Step) -> None:
        draft_slots = self.config.max_num_new_slots_for_drafting
        for request in list(self.running.values()):
            if step.token_budget <= 0 or step.input_budget <= draft_slots:
                return
            if request.status is not RequestStatus.RUNNING:
                continue  # preempted by an earlier request of this step
            num_new_tokens = self._num_new_tokens_of_running(request, step)
            if num_new_tokens <= 0:
                continue  # passed over, but a later request may need less
            new_blocks = self._allocate_or_preempt(request, num_new_tokens, step)
            if new_blocks is None:
                return
            step.running.append(request)
            step.prefill_scheduled |= request.is_prefill_chunk
            step.take(request, num_new_tokens, new_blocks)
            step.token_budget -= num_new_tokens
            step.input_budget -= num_new_tokens + draft_slots
            self._take_drafts(request, num_new_tokens, step)

    def _num_new_tokens_of_running(self, request: Request, step: Step) -> int:
        config = self.config
        placeholders = request.num_output_placeholders
        computed = request.num_computed_tokens
        if placeholders and (
            computed + 2 - placeholders >= request.num_prompt_tokens + request.max_tokens
        ):
            # A step in flight reaches max_tokens whatever it samples.
            return 0
        lag = request.num_tokens_with_spec + placeholders - computed
        if 0 < config.long_prefill_token_threshold < lag:
            lag = config.long_prefill_token_threshold
        return min(
            lag,
            step.token_budget,
            step.input_budget - config.max_num_new_slots_for_drafting,
            config.max_model_len - computed - 1,  # room for the token to be sampled
        )

    def _allocate_or_preempt(
        self, request: Request, num_new_tokens: int, step: Step
    ) -> list[int] | None:
        """Get blocks for a running request, preempting until there are enough.

        Returns the new blocks, or None if the request had to preempt itself.
        """
        while True:
            new_blocks = self.kv_cache_manager.allocate_slots(
                request, num_new_tokens, num_lookahead_tokens=self.config.num_lookahead_tokens
            )
            if new_blocks is not None:
                return new_blocks
            victim = self._choose_victim()
            del self.running[victim.request_id]
            if victim.request_id in step.num_scheduled_tokens:
                self._refund(victim, step)
            self._preempt_request(victim)
            step.preempted.append(victim)
            if victim is request:
                return None

    def _choose_victim(self) -> Request:
        if self.config.policy == "fcfs":
            return next(reversed(self.running.values()))
        # The first of the largest in running order: the id breaks no tie here, unlike in the queue.
        return max(self.running.values(), key=lambda request: priority_key(request)[:2])

    def _refund(self, victim: Request, step: Step) -> None:
        """Take a victim that this step had already scheduled out of it again."""
        step.running.remove(victim)
        restored = step.num_scheduled_tokens.pop(victim.request_id)
        step.token_budget += restored
        step.input_budget += restored + self.config.max_num_new_slots_for_drafting
        del step.new_blocks[victim.request_id]
        step.drafts.pop(victim.request_id, None)

    def _preempt_request(self, request: Request) -> None:
        """Free all blocks and put the request, progress lost, back to the head of waiting."""
        self.kv_cache_manager.free(request)
        request.status = RequestStatus.PREEMPTED
        request.num_preempted_tokens += request.num_computed_tokens
        request.num_computed_tokens = 0
        request.num_spec_tokens = 0
        # What is in flight will still be delivered, but belongs to the progress just lost.
        request.num_stale_output_tokens = request.num_in_flight_tokens
        request.num_output_placeholders = 0
        request.num_preemptions += 1
        self.waiting.prepend_request(request)

    def _take_drafts(self, request: Request, num_new_tokens: int, step: Step) -> None:
        if not request.num_spec_tokens:
            return
        known = request.num_tokens + request.num_output_placeholders
        num_drafts = request.num_computed_tokens + num_new_tokens - known
        if num_drafts > 0:
            step.drafts[request.request_id] = min(num_drafts, request.num_spec_tokens)
        request.num_spec_tokens = 0

    def _check_adapters(self, step: Step) -> None:
        max_loras = self.config.max_loras
        if not max_loras or len(loras := step.running_adapters()) <= max_loras:
            return
        raise LoraCapError(
            f"running requests of {len(loras)} LoRA adapters are decoded in one step, and"
            f" max_loras is {max_loras}: an assertion ends vLLM's engine there; that happens with"
            " async_scheduling and drafts together: raise max_loras, or turn one of the two off"
        )

    def _schedule_waiting(self, step: Step) -> None:
        config = self.config
        draft_slots = config.max_num_new_slots_for_drafting
        loras = step.running_adapters() if config.max_loras else set()
        skipped: list[Request] = []
        while (
            step.token_budget > 0
            and step.input_budget > draft_slots
            and len(self.running) < config.max_num_seqs
            and (queue := self._next_waiting_queue()) is not None
        ):
            request = queue.peek_request()
            if self._must_skip(request, loras):
                skipped.append(queue.pop_request())
                continue
            if not self._admit(request, queue, step):
                break
            if request.lora_id:
                loras.add(request.lora_id)
        if skipped:
            self.skipped_waiting.prepend_requests(skipped)
        step.skipped = skipped

    def _next_waiting_queue(self) -> RequestQueue | None:
        waiting, skipped = self.waiting, self.skipped_waiting
        if waiting and skipped and self.config.policy != "fcfs":
            first, second = waiting.peek_request(), skipped.peek_request()
            return waiting if priority_key(first) < priority_key(second) else skipped
        if skipped:
            return skipped
        return waiting if waiting else None

    def _must_skip(self, request: Request, loras: set[int]) -> bool:
        """Whether something of its own keeps this request, and only it, out of this step."""
        if request.num_stale_output_tokens:
            # Output of before its preemption is in flight: admitted now, it could sample a
            # position that is about to be delivered.
            return True
        return (
            0 < self.config.max_loras == len(loras)
            and request.lora_id != 0
            and request.lora_id not in loras
        )

    def _admit(self, request: Request, queue: RequestQueue, step: Step) -> bool:
        """Admit the head of a queue into the step; False, nothing changed, ends admission."""
        config = self.config
        hits = self.kv_cache_manager.get_computed_blocks(request)
        num_cached = len(hits) * self.cache_config.block_size
        num_new_tokens, num_padding = self._num_new_tokens_of_waiting(request, num_cached, step)
        if num_new_tokens <= 0:
            return step.refuse(request, AdmissionEnd.HEAD_NEEDS_BUDGET)
        new_blocks = self.kv_cache_manager.allocate_slots(
            request,
            num_new_tokens,
            new_computed_blocks=hits,
            num_lookahead_tokens=config.num_lookahead_tokens,
            full_sequence_must_fit=config.scheduler_reserve_full_isl,
            has_scheduled_reqs=bool(self.running),
        )
        if new_blocks is None:
            return step.refuse(request, AdmissionEnd.HEAD_NEEDS_BLOCKS)
        queue.pop_request()
        self.running[request.request_id] = request
        request.admission_index = self._num_admissions
        self._num_admissions += 1
        if request.status is RequestStatus.PREEMPTED:
            step.resumed.append(request)
            request.num_readmission_cached_tokens += num_cached
        else:
            step.new.append(request)
            request.num_cached_tokens = num_cached
        request.status = RequestStatus.RUNNING
        request.num_computed_tokens = num_cached
        step.take(request, num_new_tokens, self.kv_cache_manager.get_block_ids(request))
        step.token_budget -= num_new_tokens
        step.input_budget -= num_new_tokens + config.max_num_new_slots_for_drafting
        if num_padding:
            step.drafts[request.request_id] = num_padding
        return True

    def _num_new_tokens_of_waiting(
        self, request: Request, num_cached: int, step: Step
    ) -> tuple[int, int]:
        """Tokens for an admission, and how many of them are padding; (0, 0) ends admission.

        An admission that needs one token joins a batch of pure decodes padded with placeholder
        drafts, so that every request of the step has the same number of rows.
        """
        config = self.config
        budget = min(step.token_budget, step.input_budget - config.max_num_new_slots_for_drafting)
        num_new_tokens = request.num_tokens - num_cached
        num_padding = 0
        if (
            config.num_speculative_tokens
            and num_new_tokens == 1
            and step.running
            and not step.prefill_scheduled
            and num_cached + 1 + config.num_speculative_tokens + 1 <= config.max_model_len
        ):
            num_padding = config.num_speculative_tokens
            num_new_tokens += num_padding
            if num_new_tokens > budget:
                return 0, 0
        if 0 < config.long_prefill_token_threshold < num_new_tokens:
            num_new_tokens = config.long_prefill_token_threshold
        if num_new_tokens > budget and not config.enable_chunked_prefill:
            return 0, 0
        return min(num_new_tokens, budget), num_padding

    def _make_output(self, step: Step) -> SchedulerOutput:
        cached = CachedRequestData(resumed_req_ids={r.request_id for r in step.resumed})
        for request in (*step.running, *step.resumed):
            cached.req_ids.append(request.request_id)
            cached.new_block_ids.append(step.new_blocks[request.request_id])
            cached.num_computed_tokens.append(request.num_computed_tokens)
        finished, self.finished_req_ids = self.finished_req_ids, []
        return SchedulerOutput(
            scheduled_new_reqs=[
                NewRequestData.from_request(request, step.new_blocks[request.request_id])
                for request in step.new
            ],
            scheduled_cached_reqs=cached,
            num_scheduled_tokens=step.num_scheduled_tokens,
            total_num_scheduled_tokens=sum(step.num_scheduled_tokens.values()),
            scheduled_spec_decode_tokens=step.drafts,
            sampling_req_ids=[],
            finished_req_ids=finished,
            preempted_req_ids=[request.request_id for request in step.preempted],
            admission_end=self._admission_end(step),
            refused_req_id=step.refused.request_id if step.refused else None,
            skipped_req_ids=[request.request_id for request in step.skipped or ()],
        )

    def _admission_end(self, step: Step) -> AdmissionEnd:
        """Why the step admitted nobody more, read off what it left."""
        if step.admission_end is not None:
            return step.admission_end
        if not self.waiting and len(self.skipped_waiting) == len(step.skipped or ()):
            return AdmissionEnd.NOBODY_LEFT
        if step.skipped is None and step.preempted:
            return AdmissionEnd.PREEMPTION
        if (
            step.token_budget <= 0
            or step.input_budget <= self.config.max_num_new_slots_for_drafting
        ):
            return AdmissionEnd.TOKEN_BUDGET
        return AdmissionEnd.MAX_NUM_SEQS

    def _update_after_schedule(self, output: SchedulerOutput) -> None:
        """Advance progress at once, so that the next step can be decided before this one ran."""
        for request_id, num_scheduled in output.num_scheduled_tokens.items():
            request = self.requests[request_id]
            request.num_computed_tokens += num_scheduled
            request.num_scheduled_tokens += num_scheduled
            request.num_in_flight_tokens += num_scheduled
            request.is_prefill_chunk = (
                request.num_computed_tokens < request.num_tokens + request.num_output_placeholders
            )
            if not request.is_prefill_chunk:
                output.sampling_req_ids.append(request_id)

    # The results --------------------------------------------------------------------------

    def update_from_output(
        self, output: SchedulerOutput, num_sampled_tokens: Mapping[RequestId, int]
    ) -> list[EngineCoreOutput]:
        """Process the results of a step: `num_sampled_tokens[id]` tokens for each request in it.

        Requests without an entry got none. Tokens beyond a stop are dropped. Finished requests
        are freed. Returns the tokens that each request got and why it ended, in scheduled order.
        """
        outputs = self._process_output(output, num_sampled_tokens)
        for result in outputs:
            if result.finish_reason is not None:
                self._free_stopped(self.requests[result.request_id])
        return outputs

    def _process_output(
        self, output: SchedulerOutput, num_sampled_tokens: Mapping[RequestId, int]
    ) -> list[EngineCoreOutput]:
        """Append the tokens of a step; requests that stop get their status, nothing is freed."""
        outputs: list[EngineCoreOutput] = []
        for request_id, num_scheduled in output.num_scheduled_tokens.items():
            request = self.requests.get(request_id)
            if request is None:
                continue  # aborted while in flight
            request.num_in_flight_tokens -= num_scheduled
            is_stale = request.num_stale_output_tokens > 0
            if is_stale:
                request.num_stale_output_tokens -= num_scheduled
            num_sampled = num_sampled_tokens.get(request_id, 0)
            if not num_sampled:
                continue
            num_drafts = output.scheduled_spec_decode_tokens.get(request_id, 0)
            if num_drafts and not is_stale:
                self._reject_drafts(request, num_drafts - (num_sampled - 1))
            num_new, stopped = self._update_request_with_output(request, num_sampled, is_stale)
            outputs.append(
                EngineCoreOutput(request_id, num_new, request.status.value if stopped else None)
            )
        return outputs

    def _reject_drafts(self, request: Request, num_rejected: int) -> None:
        """Take progress back to the last token that was accepted."""
        request.num_computed_tokens -= num_rejected
        request.num_rejected_tokens += num_rejected
        if request.num_output_placeholders:
            request.num_output_placeholders -= num_rejected

    def _update_request_with_output(
        self, request: Request, num_sampled: int, is_stale: bool
    ) -> tuple[int, bool]:
        """Append tokens until one stops the request; returns how many, and whether it stopped."""
        for num_new in range(1, num_sampled + 1):
            if request.append_output_token(self.config.max_model_len):
                return num_new, True
        return num_sampled, False

    def _free_stopped(self, request: Request) -> None:
        if self.running.pop(request.request_id, None) is None:
            # Stopped by output that was in flight when it was preempted.
            self.waiting.remove_request(request)
            self.skipped_waiting.remove_request(request)
        self._free_request(request)

    def _free_request(self, request: Request) -> None:
        self.kv_cache_manager.free(request)
        del self.requests[request.request_id]
        self.finished_req_ids.append(request.request_id)

    def update_draft_token_ids(self, num_drafts: Mapping[RequestId, int]) -> None:
        """Take the drafts proposed after a step; those for unfinished prompts are dropped."""
        for request_id, num_spec_tokens in num_drafts.items():
            request = self.requests.get(request_id)
            if request is not None:
                request.num_spec_tokens = 0 if request.is_prefill_chunk else num_spec_tokens

    def check(self) -> None:
        """Compare the KV cache's books with the requests. Raises `BlockPoolError`."""
        self.kv_cache_manager.check(self.requests.values())
