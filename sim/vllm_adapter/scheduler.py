"""Lets a vLLM scheduler stand where ours does."""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sim.scheduler.block_hash import output_segment, own_segment
from sim.scheduler.config import CacheConfig, SchedulerConfig
from sim.scheduler.output import (
    CachedRequestData,
    EngineCoreOutput,
    NewRequestData,
    SchedulerOutput,
)
from sim.scheduler.request import Request, RequestId, RequestStatus
from sim.scheduler.scheduler import EngineFailure, UnknownRequestError
from sim.vllm_adapter.tokens import STOP_TOKEN_ID, TokenSpace

_ID_DIGITS = 12


@dataclass(slots=True)
class VllmSchedulerOutput(SchedulerOutput):
    """A decision of vLLM in our words, with the original for when its results come."""

    theirs: Any


class VllmKVCache:
    """How full vLLM's KV cache is."""

    def __init__(self, block_pool: Any) -> None:
        self._pool = block_pool

    @property
    def num_free_blocks(self) -> int:
        """Blocks that nobody holds."""
        return int(self._pool.get_num_free_blocks())

    @property
    def num_used_blocks(self) -> int:
        """Blocks that requests hold; the null block is nobody's."""
        return int(self._pool.num_gpu_blocks) - 1 - self.num_free_blocks


class VllmScheduler:
    """A vLLM scheduler with the interface of `sim.scheduler.scheduler.Scheduler`.

    Every request exists twice: ours, whose progress and counters are kept up to date for those who
    drive the scheduler, and vLLM's, by which it decides. Integer ids become digits of equal
    length, which vLLM's comparison of ids as text leaves in their order. What belongs to vLLM's
    inner life (blocks, placeholders) stays there.
    """

    def __init__(self, config: SchedulerConfig, cache_config: CacheConfig, theirs: Any) -> None:
        self.config = config
        self.cache_config = cache_config
        self.theirs = theirs
        self.kv_cache_manager = VllmKVCache(theirs.kv_cache_manager.block_pool)
        self.requests: dict[RequestId, Request] = {}
        self._by_key: dict[str, Request] = {}
        self._tokens = TokenSpace()
        outputs = importlib.import_module("vllm.v1.outputs")
        self._model_runner_output = outputs.ModelRunnerOutput
        self._draft_token_ids = outputs.DraftTokenIds
        statuses = importlib.import_module("vllm.v1.request").RequestStatus
        self._aborted_status = statuses.FINISHED_ABORTED
        self._make_theirs = _RequestMaker(cache_config.block_size, self._tokens)

    def add_request(self, request: Request) -> None:
        """Queue a request. Raises `UnknownRequestError` if its id is taken."""
        if request.request_id in self.requests:
            raise UnknownRequestError(f"request {request.request_id} was added before")
        key = _key(request.request_id)
        self.requests[request.request_id] = request
        self._by_key[key] = request
        self.theirs.add_request(self._make_theirs(key, request))

    def finish_requests(self, request_ids: Iterable[RequestId]) -> list[Request]:
        """Abort requests; returns those that were."""
        status = self._aborted_status
        aborted: list[Request] = []
        for request_id in request_ids:
            for theirs in self.theirs.finish_requests(_key(request_id), status):
                request = self._by_key.pop(theirs.request_id)
                request.status = RequestStatus.FINISHED_ABORTED
                del self.requests[request.request_id]
                aborted.append(request)
        return aborted

    @property
    def has_requests(self) -> bool:
        """Whether a step has anything to do."""
        return bool(self.theirs.has_requests())

    @property
    def num_waiting(self) -> int:
        """Requests not admitted, skipped ones included."""
        return len(self.theirs.waiting) + len(self.theirs.skipped_waiting)

    @property
    def running(self) -> dict[RequestId, Request]:
        """Running requests by id, in running order."""
        return {request.request_id: request for request in self._ours(self.theirs.running)}

    @property
    def waiting(self) -> list[Request]:
        """Arrivals and preempted requests, in the order in which they would be taken."""
        return list(self._ours(self.theirs.waiting))

    @property
    def skipped_waiting(self) -> list[Request]:
        """Those passed over for a reason of their own, in the same order."""
        return list(self._ours(self.theirs.skipped_waiting))

    def _decide(self) -> Any:
        try:
            return self.theirs.schedule()
        except AssertionError as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            what = " ".join(filter(None, (place.line, str(error))))
            raise EngineFailure(
                f"{type(self.theirs).__name__} failed an assertion of its own, which would end the"
                f" engine: {what} ({Path(place.filename).name}:{place.lineno})"
            ) from error

    def schedule(self) -> SchedulerOutput:
        """Decide a step. Raises `EngineFailure` if an assertion of the class itself fails."""
        theirs = self._decide()
        preempted = [self._by_key[key] for key in sorted(theirs.preempted_req_ids or ())]
        for request in preempted:
            _note_preemption(request)
            self._note_in_flight(request)
        output = VllmSchedulerOutput(
            scheduled_new_reqs=[],
            scheduled_cached_reqs=CachedRequestData(),
            num_scheduled_tokens={},
            total_num_scheduled_tokens=theirs.total_num_scheduled_tokens,
            scheduled_spec_decode_tokens={
                self._by_key[key].request_id: len(drafts)
                for key, drafts in theirs.scheduled_spec_decode_tokens.items()
            },
            sampling_req_ids=[],
            finished_req_ids=sorted(theirs.finished_req_ids),
            preempted_req_ids=[request.request_id for request in preempted],
            theirs=theirs,
        )
        for key, num_scheduled in theirs.num_scheduled_tokens.items():
            self._note_scheduled(key, num_scheduled, output)
        return output

    def _note_scheduled(self, key: str, num_scheduled: int, output: VllmSchedulerOutput) -> None:
        request, theirs = self._by_key[key], self.theirs.requests[key]
        num_computed = theirs.num_computed_tokens - num_scheduled
        _note_admission(request, num_computed, output)
        output.num_scheduled_tokens[request.request_id] = num_scheduled
        request.num_scheduled_tokens += num_scheduled
        request.num_computed_tokens = theirs.num_computed_tokens
        request.is_prefill_chunk = theirs.is_prefill_chunk
        self._note_in_flight(request)
        if not theirs.is_prefill_chunk:
            output.sampling_req_ids.append(request.request_id)

    def _note_in_flight(self, request: Request) -> None:
        theirs = self.theirs.requests[_key(request.request_id)]
        request.num_in_flight_tokens = theirs.num_in_flight_tokens
        request.num_stale_output_tokens = theirs.num_stale_output_tokens

    def update_from_output(
        self, output: SchedulerOutput, num_sampled_tokens: Mapping[RequestId, int]
    ) -> list[EngineCoreOutput]:
        """Process the results of a step: `num_sampled_tokens[id]` tokens for each request in it."""
        if not isinstance(output, VllmSchedulerOutput):
            raise TypeError("these results are of a step that another scheduler decided")
        batch = [
            (self.requests[request_id], self.theirs.requests[_key(request_id)])
            for request_id in output.num_scheduled_tokens
            if request_id in self.requests
        ]
        sampled = [
            self._output_tokens(request_id, num_sampled_tokens.get(request_id, 0))
            for request_id in output.num_scheduled_tokens
        ]
        keys = [_key(request_id) for request_id in output.num_scheduled_tokens]
        results = self.theirs.update_from_output(output.theirs, self.model_output(keys, sampled))
        for request, theirs in batch:
            request.num_rejected_tokens += request.num_computed_tokens - theirs.num_computed_tokens
            request.num_computed_tokens = theirs.num_computed_tokens
            request.num_output_tokens = theirs.num_output_tokens
            request.num_in_flight_tokens = theirs.num_in_flight_tokens
            request.num_stale_output_tokens = theirs.num_stale_output_tokens
        return [self._result(theirs) for outputs in results.values() for theirs in outputs.outputs]

    def update_draft_token_ids(self, num_drafts: Mapping[RequestId, int]) -> None:
        """Take the drafts proposed after a step."""
        self.theirs.update_draft_token_ids(
            self._draft_token_ids(
                [_key(r) for r in num_drafts], [[0] * n for n in num_drafts.values()]
            )
        )

    def check(self) -> None:
        """Nothing: its books are its own."""

    def _ours(self, theirs: Iterable[Any]) -> Iterator[Request]:
        return (self._by_key[request.request_id] for request in theirs)

    def model_output(self, keys: list[str], sampled_token_ids: list[list[int]]) -> Any:
        """vLLM's record of what a model sampled, for requests by vLLM's ids."""
        return self._model_runner_output(
            req_ids=keys,
            req_id_to_index={key: index for index, key in enumerate(keys)},
            sampled_token_ids=sampled_token_ids,
        )

    def _output_tokens(self, request_id: RequestId, num_tokens: int) -> list[int]:
        """The next output tokens of a request, its stop token in its place."""
        request = self.requests.get(request_id)
        if request is None or not num_tokens:
            return [0] * num_tokens
        start = request.num_output_tokens
        tokens = list(self._tokens.token_ids(output_segment(request_id), start, start + num_tokens))
        if request.stop_at is not None and start < request.stop_at <= start + num_tokens:
            tokens[request.stop_at - 1 - start] = STOP_TOKEN_ID
        return tokens

    def _result(self, theirs: Any) -> EngineCoreOutput:
        request = self._by_key[theirs.request_id]
        reason = None if theirs.finish_reason is None else str(theirs.finish_reason)
        if reason is not None:
            request.status = RequestStatus(reason)
            del self.requests[request.request_id], self._by_key[theirs.request_id]
        return EngineCoreOutput(request.request_id, len(theirs.new_token_ids), reason)


def _key(request_id: RequestId) -> str:
    return request_id if isinstance(request_id, str) else f"{request_id:0{_ID_DIGITS}d}"


def _note_preemption(request: Request) -> None:
    request.status = RequestStatus.PREEMPTED
    request.num_preempted_tokens += request.num_computed_tokens
    request.num_computed_tokens = 0
    request.num_preemptions += 1


def _note_admission(request: Request, num_computed: int, output: SchedulerOutput) -> None:
    """Enter a scheduled request where it belongs: new, resumed, or running before."""
    if request.status is RequestStatus.WAITING:
        request.num_cached_tokens = num_computed
        request.status = RequestStatus.RUNNING
        output.scheduled_new_reqs.append(_new_request_data(request, num_computed))
        return
    cached = output.scheduled_cached_reqs
    if request.status is RequestStatus.PREEMPTED:
        request.num_readmission_cached_tokens += num_computed
        request.status = RequestStatus.RUNNING
        cached.resumed_req_ids.add(request.request_id)
    cached.req_ids.append(request.request_id)
    cached.new_block_ids.append([])
    cached.num_computed_tokens.append(num_computed)


def _new_request_data(request: Request, num_computed: int) -> NewRequestData:
    return NewRequestData(
        request_id=request.request_id,
        prompt=request.prompt,
        num_prompt_tokens=request.num_prompt_tokens,
        max_tokens=request.max_tokens,
        lora_id=request.lora_id,
        block_ids=[],
        num_computed_tokens=num_computed,
    )


class _RequestMaker:
    """Makes vLLM's request of ours."""

    def __init__(self, block_size: int, tokens: TokenSpace) -> None:
        kv_cache_utils = importlib.import_module("vllm.v1.core.kv_cache_utils")
        hashing = importlib.import_module("vllm.utils.hashing")
        self._request = importlib.import_module("vllm.v1.request").Request
        self._sampling_params = importlib.import_module("vllm.sampling_params").SamplingParams
        self._lora_request = importlib.import_module("vllm.lora.request").LoRARequest
        self._hasher = kv_cache_utils.get_request_block_hasher(block_size, hashing.sha256)
        self._tokens = tokens

    def __call__(self, key: str, request: Request) -> Any:
        prompt = request.prompt or ((own_segment(request.request_id), request.num_prompt_tokens),)
        return self._request(
            request_id=key,
            prompt_token_ids=self._tokens.prompt(prompt),
            sampling_params=self._sampling_params(
                max_tokens=request.max_tokens, stop_token_ids=[STOP_TOKEN_ID]
            ),
            pooling_params=None,
            arrival_time=request.arrival_time,
            priority=request.priority,
            lora_request=self._lora(request.lora_id),
            block_hasher=self._hasher,
        )

    def _lora(self, lora_id: int) -> Any:
        if not lora_id:
            return None
        return self._lora_request(f"lora-{lora_id}", lora_id, "none")
