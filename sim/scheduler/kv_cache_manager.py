"""Slots in the KV cache for the tokens of requests: prefix hits, allocation, freeing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from sim.scheduler.block_pool import BlockPool, BlockPoolError
from sim.scheduler.config import CacheConfig, SchedulerConfig
from sim.scheduler.request import Request, RequestStatus


class KVCache(Protocol):
    """What the scheduler asks of a KV cache manager; what the calls do is said below.

    The hits of `get_computed_blocks` are for `allocate_slots` alone; others may ask their number.
    """

    @property
    def num_free_blocks(self) -> int:
        """Blocks that nobody holds."""
        ...

    @property
    def num_used_blocks(self) -> int:
        """Blocks that requests hold."""
        ...

    def get_block_ids(self, request: Request) -> list[int]:
        """The request's blocks, in the order of its tokens; empty if blocks have no ids."""
        ...

    def get_computed_blocks(self, request: Request) -> Any:
        """Cached full blocks that begin the request."""
        ...

    def allocate_slots(
        self,
        request: Request,
        num_new_tokens: int,
        *,
        new_computed_blocks: Any = ...,
        num_lookahead_tokens: int = ...,
        full_sequence_must_fit: bool = ...,
        has_scheduled_reqs: bool = ...,
    ) -> list[int] | None:
        """Slots for more tokens, or None and no change."""
        ...

    def cache_blocks(self, request: Request, num_tokens: int) -> None:
        """Make full blocks findable."""
        ...

    def free(self, request: Request) -> None:
        """Let go of all blocks of the request."""
        ...

    def check(self, requests: Iterable[Request]) -> None:
        """Compare the books with what these (all) requests hold."""
        ...


class KVCacheManager:
    """Gives requests the blocks that their tokens need (vLLM's `KVCacheManager`).

    A request's blocks are in `request.blocks`, in the order of its tokens; the first
    `request.num_cached_blocks` of them are findable by their hash. Both are changed only here.
    """

    def __init__(self, cache: CacheConfig, scheduler: SchedulerConfig) -> None:
        self.block_size = cache.block_size
        self.enable_caching = cache.enable_prefix_caching
        self.max_model_len = scheduler.max_model_len
        self.drop_last_hit = scheduler.use_eagle
        self.block_pool = BlockPool(cache.num_gpu_blocks, cache.enable_prefix_caching)
        # The share is of all blocks, the null block included.
        self.watermark_blocks = int(scheduler.watermark * cache.num_gpu_blocks)

    @property
    def num_free_blocks(self) -> int:
        """Blocks that nobody holds."""
        return self.block_pool.num_free_blocks

    @property
    def num_used_blocks(self) -> int:
        """Blocks that requests hold."""
        return self.block_pool.num_gpu_blocks - 1 - self.block_pool.num_free_blocks

    def get_computed_blocks(self, request: Request) -> list[int]:
        """The longest run of cached full blocks that begins the request's known tokens.

        The last token is always computed anew, since its logits are needed: a fully cached
        request recomputes its last block. Changes nothing: the blocks are not held yet.
        """
        if not self.enable_caching:
            return []
        num_full_blocks = (request.num_tokens - 1) // self.block_size
        blocks: list[int] = []
        for block_hash in request.content.block_hashes(0, num_full_blocks, self.block_size):
            block = self.block_pool.get_cached_block(block_hash)
            if block is None:
                break
            blocks.append(block)
        if self.drop_last_hit and blocks:
            # An EAGLE drafter needs the hidden states of the tokens before its first draft.
            blocks.pop()
        return blocks

    def allocate_slots(
        self,
        request: Request,
        num_new_tokens: int,
        *,
        new_computed_blocks: Sequence[int] = (),
        num_lookahead_tokens: int = 0,
        full_sequence_must_fit: bool = False,
        has_scheduled_reqs: bool = True,
    ) -> list[int] | None:
        """Give the request slots for `num_new_tokens` (>= 1) more tokens, or None if it can't be.

        `new_computed_blocks` are prefix hits, taken first; one that nobody holds counts against
        the free blocks. With `full_sequence_must_fit` every token known so far must find room, not
        only those of this step. An admission leaves the watermark free while
        `has_scheduled_reqs`. Returns the new blocks, hits not among them. On None nothing changed.

        Full blocks of known tokens become findable at once, in this very step; drafts do not.
        """
        pool = self.block_pool
        num_computed = request.num_computed_tokens + len(new_computed_blocks) * self.block_size
        num_held = len(request.blocks) + len(new_computed_blocks)
        reserve = sum(pool.ref_cnt[block] == 0 for block in new_computed_blocks)
        if has_scheduled_reqs and request.status is not RequestStatus.RUNNING:
            reserve += self.watermark_blocks
        available = pool.num_free_blocks - reserve
        if full_sequence_must_fit:
            num_full = self._num_blocks(min(request.num_tokens, self.max_model_len))
            if max(num_full - num_held, 0) > available:
                return None
        num_slots = num_computed + num_new_tokens + num_lookahead_tokens
        # Blocks of rejected drafts are kept, so a request may hold more than it needs.
        num_new_blocks = max(self._num_blocks(min(num_slots, self.max_model_len)) - num_held, 0)
        if num_new_blocks > available:
            return None

        if new_computed_blocks:
            pool.touch(new_computed_blocks)
            request.blocks.extend(new_computed_blocks)
            request.num_cached_blocks = len(request.blocks)
        new_blocks = pool.get_new_blocks(num_new_blocks) if num_new_blocks else []
        request.blocks.extend(new_blocks)
        if self.enable_caching:
            self.cache_blocks(request, min(num_computed + num_new_tokens, request.num_tokens))
        return new_blocks

    def cache_blocks(self, request: Request, num_tokens: int) -> None:
        """Make the full blocks among the request's first `num_tokens` tokens findable."""
        first, end = request.num_cached_blocks, num_tokens // self.block_size
        if not self.enable_caching or first >= end:
            return
        hashes = request.content.block_hashes(first, end, self.block_size)
        self.block_pool.cache_full_blocks(request.blocks[first:end], hashes)
        request.num_cached_blocks = end

    def get_block_ids(self, request: Request) -> list[int]:
        """The request's blocks, in the order of its tokens."""
        return list(request.blocks)

    def free(self, request: Request) -> None:
        """Let go of all blocks of the request, its last one first in line for reuse."""
        self.block_pool.free_blocks(reversed(request.blocks))
        request.blocks = []
        request.num_cached_blocks = 0

    def check(self, requests: Iterable[Request]) -> None:
        """Compare the pool's books with the blocks that these (all) requests hold.

        Raises `BlockPoolError` naming both counts.
        """
        self.block_pool.check()
        held = [0] * self.block_pool.num_gpu_blocks
        for request in requests:
            for block in request.blocks:
                held[block] += 1
        for block, count in enumerate(held):
            if count != self.block_pool.ref_cnt[block]:
                raise BlockPoolError(
                    f"block {block} is held by {count} requests, "
                    f"its reference count is {self.block_pool.ref_cnt[block]}"
                )

    def _num_blocks(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)
