"""One request, as the scheduler sees it: a progress bar."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from sim.scheduler.block_hash import ContentHashes, Segment, output_segment, own_segment

RequestId = int | str


class RequestStatus(Enum):
    """Where a request stands (vLLM's names)."""

    WAITING = "waiting"
    RUNNING = "running"
    PREEMPTED = "preempted"
    FINISHED_STOPPED = "stop"
    FINISHED_LENGTH_CAPPED = "length"
    FINISHED_ABORTED = "abort"

    @property
    def is_finished(self) -> bool:
        """Whether nothing more will be computed."""
        return self in _FINISHED


_FINISHED = frozenset(
    {
        RequestStatus.FINISHED_STOPPED,
        RequestStatus.FINISHED_LENGTH_CAPPED,
        RequestStatus.FINISHED_ABORTED,
    }
)


class Request:
    """A request and its progress: `num_computed_tokens` chases `num_tokens_with_spec`.

    There is no prefill phase and no decode phase: a prefill is a request that lags by thousands
    of tokens, a decode one that lags by one. Tokens have no values here: outputs are counted,
    and content is known by segments (`block_hash`).

    Arguments: `stop_at` is the number of the output token that is a stop token (None: the
    request runs to `max_tokens`); `prompt` holds the segments of the prompt, their lengths summing
    to `num_prompt_tokens`; empty means content of its own. `lora_id` 0 is the base model.

    Written by the scheduler: everything below the line "progress". `blocks` and
    `num_cached_blocks`, or `kv_holding`, belong to the KV cache manager. `admission_index` counts
    admissions: its order is that of the running queue. The counters at the end only ever grow and
    satisfy, at any time:

        num_scheduled_tokens + num_cached_tokens + num_readmission_cached_tokens
            == num_computed_tokens + num_preempted_tokens + num_rejected_tokens
    """

    __slots__ = (
        "_content",
        "admission_index",
        "arrival_time",
        "blocks",
        "is_prefill_chunk",
        "kv_holding",
        "lora_id",
        "max_tokens",
        "num_cached_blocks",
        "num_cached_tokens",
        "num_computed_tokens",
        "num_in_flight_tokens",
        "num_output_placeholders",
        "num_output_tokens",
        "num_preempted_tokens",
        "num_preemptions",
        "num_prompt_tokens",
        "num_readmission_cached_tokens",
        "num_rejected_tokens",
        "num_scheduled_tokens",
        "num_spec_tokens",
        "num_stale_output_tokens",
        "priority",
        "prompt",
        "request_id",
        "status",
        "stop_at",
    )

    def __init__(
        self,
        request_id: RequestId,
        num_prompt_tokens: int,
        max_tokens: int,
        *,
        arrival_time: float = 0.0,
        priority: int = 0,
        prompt: tuple[Segment, ...] = (),
        stop_at: int | None = None,
        lora_id: int = 0,
    ) -> None:
        self.request_id = request_id
        self.num_prompt_tokens = num_prompt_tokens
        self.max_tokens = max_tokens
        self.arrival_time = arrival_time
        self.priority = priority
        self.prompt = prompt
        self.stop_at = stop_at
        self.lora_id = lora_id
        self._content: ContentHashes | None = None
        # progress
        self.status = RequestStatus.WAITING
        self.num_computed_tokens = 0
        self.num_output_tokens = 0
        self.num_spec_tokens = 0  # drafts proposed, not yet scheduled
        self.num_output_placeholders = 0  # async: tokens sampled by steps still in flight
        self.num_in_flight_tokens = 0  # scheduled in steps whose results are not processed
        self.num_stale_output_tokens = 0  # of those, scheduled before the last preemption
        self.is_prefill_chunk = False  # its last scheduled piece did not reach its known end
        self.admission_index = -1
        self.blocks: list[int] = []
        self.num_cached_blocks = 0
        self.kv_holding: object = None
        # counters
        self.num_preemptions = 0
        self.num_scheduled_tokens = 0
        self.num_cached_tokens = 0
        self.num_readmission_cached_tokens = 0
        self.num_preempted_tokens = 0
        self.num_rejected_tokens = 0

    @property
    def num_tokens(self) -> int:
        """Tokens known: the prompt and the outputs so far."""
        return self.num_prompt_tokens + self.num_output_tokens

    @property
    def num_tokens_with_spec(self) -> int:
        """Tokens known or drafted."""
        return self.num_prompt_tokens + self.num_output_tokens + self.num_spec_tokens

    @property
    def content(self) -> ContentHashes:
        """Hashes of its prefixes, made when first asked for."""
        if self._content is None:
            prompt = self.prompt or ((own_segment(self.request_id), self.num_prompt_tokens),)
            self._content = ContentHashes(prompt, output_segment(self.request_id), self.lora_id)
        return self._content

    @property
    def is_finished(self) -> bool:
        """Whether nothing more will be computed."""
        return self.status.is_finished

    def append_output_token(self, max_model_len: int) -> bool:
        """Count one more output token; set the final status and return True if it is the last.

        The order of the tests is vLLM's: a stop token first, then the lengths.
        """
        self.num_output_tokens += 1
        if self.num_output_tokens == self.stop_at:
            self.status = RequestStatus.FINISHED_STOPPED
            return True
        if self.num_output_tokens >= self.max_tokens or self.num_tokens >= max_model_len:
            self.status = RequestStatus.FINISHED_LENGTH_CAPPED
            return True
        return False

    def __repr__(self) -> str:
        return (
            f"<Request {self.request_id} {self.status.value} "
            f"{self.num_computed_tokens}/{self.num_tokens}>"
        )


RequestMap = Mapping[RequestId, Request]
