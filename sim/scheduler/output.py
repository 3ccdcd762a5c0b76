"""What passes between the scheduler and whoever runs the model: plain records."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from sim.scheduler.block_hash import Segment
from sim.scheduler.request import Request, RequestId


@dataclass(frozen=True, slots=True)
class NewRequestData:
    """A request scheduled for the first time, in full."""

    request_id: RequestId
    prompt: tuple[Segment, ...]
    num_prompt_tokens: int
    max_tokens: int
    lora_id: int
    block_ids: list[int]
    num_computed_tokens: int

    @classmethod
    def from_request(cls, request: Request, block_ids: list[int]) -> NewRequestData:
        """Describe a request at its first admission, before its progress is advanced."""
        return cls(
            request.request_id,
            request.prompt,
            request.num_prompt_tokens,
            request.max_tokens,
            request.lora_id,
            block_ids,
            request.num_computed_tokens,
        )


@dataclass(slots=True)
class CachedRequestData:
    """Requests that the workers know already: only what changed, one entry a request.

    `new_block_ids[i]` are to be appended to the blocks of `req_ids[i]`, or, for a request in
    `resumed_req_ids`, replace them. `num_computed_tokens[i]` is its progress before this step.
    """

    req_ids: list[RequestId] = field(default_factory=list)
    resumed_req_ids: set[RequestId] = field(default_factory=set)
    new_block_ids: list[list[int]] = field(default_factory=list)
    num_computed_tokens: list[int] = field(default_factory=list)


class AdmissionEnd(Enum):
    """Why a step admitted nobody more."""

    NOBODY_LEFT = "nobody waits but those passed over"
    TOKEN_BUDGET = "the tokens of the step are handed out"
    MAX_NUM_SEQS = "every seat is taken"
    PREEMPTION = "a step that preempted for want of blocks admits nobody"
    HEAD_NEEDS_BUDGET = "the next in line can't be cut to what is left of the tokens"
    HEAD_NEEDS_BLOCKS = "the next in line needs more blocks than are free"


@dataclass(slots=True)
class SchedulerOutput:
    """One step's decision.

    `num_scheduled_tokens` maps a request to the tokens that the step computes for it, in the
    scheduler's order; `scheduled_spec_decode_tokens` to how many of those are drafts.
    `sampling_req_ids` are the scheduled requests whose known tokens end with this step and which
    therefore get a token. `finished_req_ids` finished since the previous step;
    `preempted_req_ids` were preempted by this one.

    `admission_end` says why nobody more was admitted, `refused_req_id` who the next in line was
    where it was that request's own fault, and `skipped_req_ids` who was passed over.
    """

    scheduled_new_reqs: list[NewRequestData]
    scheduled_cached_reqs: CachedRequestData
    num_scheduled_tokens: dict[RequestId, int]
    total_num_scheduled_tokens: int
    scheduled_spec_decode_tokens: dict[RequestId, int]
    sampling_req_ids: list[RequestId]
    finished_req_ids: list[RequestId]
    preempted_req_ids: list[RequestId]
    admission_end: AdmissionEnd = field(default=AdmissionEnd.NOBODY_LEFT, kw_only=True)
    refused_req_id: RequestId | None = field(default=None, kw_only=True)
    skipped_req_ids: list[RequestId] = field(default_factory=list, kw_only=True)

    @classmethod
    def empty(cls) -> SchedulerOutput:
        """A step of nobody."""
        return cls([], CachedRequestData(), {}, 0, {}, [], [], [])


@dataclass(frozen=True, slots=True)
class EngineCoreOutput:
    """Tokens that a request got from one step, and why it ended if it did ("stop", "length")."""

    request_id: RequestId
    num_new_tokens: int
    finish_reason: str | None = None
