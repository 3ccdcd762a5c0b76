"""What the scheduler and its KV cache are told, in vLLM's names and with vLLM's defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

VLLM_VERSION = "0.29.0"
"""The release of vLLM whose scheduler this one follows, decision by decision."""

PolicyName = Literal["fcfs", "priority"]


class SchedulerConfigError(ValueError):
    """A combination of scheduler options that vLLM itself refuses."""


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """Options of the scheduler (vLLM 0.29.0 `SchedulerConfig`, and what it reads from elsewhere).

    `max_num_scheduled_tokens` is the token budget of a step, None meaning
    `max_num_batched_tokens`, which is the budget of the model's input. `max_loras` 0 turns the
    LoRA cap off. The last four describe speculative decoding: drafts proposed a step, extra KV
    slots kept for a drafter with a KV cache of its own, input rows that a parallel drafter takes
    besides, and whether the drafter is of the EAGLE kind (its last prefix hit is dropped).

    Raises `SchedulerConfigError` for what vLLM refuses.
    """

    max_num_seqs: int = 128
    max_num_batched_tokens: int = 2048
    max_num_scheduled_tokens: int | None = None
    max_model_len: int = 4096
    policy: PolicyName = "fcfs"
    enable_chunked_prefill: bool = True
    long_prefill_token_threshold: int = 0
    scheduler_reserve_full_isl: bool = True
    watermark: float = 0.0
    async_scheduling: bool = False
    max_loras: int = 0
    num_speculative_tokens: int = 0
    num_lookahead_tokens: int = 0
    max_num_new_slots_for_drafting: int = 0
    use_eagle: bool = False

    def __post_init__(self) -> None:
        for name in ("max_num_seqs", "max_num_batched_tokens", "max_model_len"):
            if getattr(self, name) < 1:
                raise SchedulerConfigError(f"{name} is {getattr(self, name)}; it must be >= 1")
        if self.max_num_scheduled_tokens is not None and self.max_num_scheduled_tokens < 1:
            raise SchedulerConfigError(
                f"max_num_scheduled_tokens is {self.max_num_scheduled_tokens}; it must be >= 1"
            )
        if self.policy not in ("fcfs", "priority"):
            raise SchedulerConfigError(f"policy is {self.policy!r}; it must be fcfs or priority")
        if not 0.0 <= self.watermark < 1.0:
            raise SchedulerConfigError(f"watermark is {self.watermark}; it must lie in [0, 1)")
        self._check_batched_tokens()
        self._check_threshold()

    def _check_batched_tokens(self) -> None:
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise SchedulerConfigError(
                f"max_num_batched_tokens ({self.max_num_batched_tokens}) is below max_num_seqs "
                f"({self.max_num_seqs}); raise the first or lower the second"
            )
        if self.max_num_batched_tokens <= self.max_num_new_slots_for_drafting:
            raise SchedulerConfigError(
                f"max_num_batched_tokens ({self.max_num_batched_tokens}) leaves no row beside the "
                f"drafter's {self.max_num_new_slots_for_drafting} of one request"
            )
        if not self.enable_chunked_prefill and self.max_num_batched_tokens < self.max_model_len:
            raise SchedulerConfigError(
                f"max_num_batched_tokens ({self.max_num_batched_tokens}) is below max_model_len "
                f"({self.max_model_len}) without chunked prefill: longer prompts could never be "
                "scheduled; raise the first, lower the second or enable chunked prefill"
            )

    def _check_threshold(self) -> None:
        threshold = self.long_prefill_token_threshold
        if threshold < 0:
            raise SchedulerConfigError(
                f"long_prefill_token_threshold is {threshold}; it must be >= 0 (0 turns it off)"
            )
        if 0 < threshold <= self.num_speculative_tokens:
            raise SchedulerConfigError(
                f"long_prefill_token_threshold ({threshold}) is below 1 + num_speculative_tokens "
                f"({1 + self.num_speculative_tokens}): a step of one request could not be verified"
            )

    @property
    def token_budget(self) -> int:
        """Tokens that one step may compute."""
        if self.max_num_scheduled_tokens is None:
            return self.max_num_batched_tokens
        return self.max_num_scheduled_tokens


@dataclass(frozen=True, slots=True)
class CacheConfig:
    """The paged KV cache of one replica.

    `num_gpu_blocks` counts the null block, as vLLM's log does: `num_gpu_blocks - 1` are usable.
    """

    num_gpu_blocks: int
    block_size: int = 16
    enable_prefix_caching: bool = True

    def __post_init__(self) -> None:
        if self.block_size < 1:
            raise SchedulerConfigError(f"block_size is {self.block_size}; it must be >= 1")
        if self.num_gpu_blocks < 2:
            raise SchedulerConfigError(
                f"num_gpu_blocks is {self.num_gpu_blocks}; it must be >= 2: block 0 is the null "
                "block and holds nothing"
            )

    @property
    def num_usable_blocks(self) -> int:
        """Blocks that requests can hold."""
        return self.num_gpu_blocks - 1
