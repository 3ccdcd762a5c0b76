"""What can never be served is turned away at the door, with its reason."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from sim.scheduler.config import CacheConfig, SchedulerConfig

TOO_LONG = "longer than max_model_len"
TOO_LARGE = "larger than the KV pool"


class Admission:
    """Decides whether a replica could ever finish a request of these lengths."""

    def __init__(self, scheduler: SchedulerConfig, cache: CacheConfig) -> None:
        self._scheduler = scheduler
        self._cache = cache

    def refusal(self, num_prompt_tokens: int, num_output_tokens: int) -> tuple[str, str] | None:
        """None if it fits; else the reason, and its figures ("needs 24 blocks, ...").

        The last output token is returned but never computed on, so it needs no slot.
        """
        num_tokens = num_prompt_tokens + num_output_tokens
        limit = self._scheduler.max_model_len
        if num_tokens > limit:
            return TOO_LONG, f"has {num_tokens} tokens, max_model_len is {limit}"
        num_slots = min(num_tokens - 1 + self._scheduler.num_lookahead_tokens, limit)
        num_blocks = -(-num_slots // self._cache.block_size)
        if num_blocks > self._cache.num_usable_blocks:
            return (
                TOO_LARGE,
                f"needs {num_blocks} blocks, the pool has {self._cache.num_usable_blocks}",
            )
        return None

    def refusals(
        self, num_prompt_tokens: npt.NDArray[Any], num_output_tokens: npt.NDArray[Any]
    ) -> npt.NDArray[np.bool_]:
        """For many requests at once, whether `refusal` has a reason."""
        num_tokens = num_prompt_tokens + num_output_tokens
        limit = self._scheduler.max_model_len
        num_slots = np.minimum(num_tokens - 1 + self._scheduler.num_lookahead_tokens, limit)
        num_blocks = -(-num_slots // self._cache.block_size)
        refused: npt.NDArray[np.bool_] = (num_tokens > limit) | (
            num_blocks > self._cache.num_usable_blocks
        )
        return refused
