"""The blocks of the paged KV cache: who holds them, which can be reused, which can be found.

Rules (vLLM 0.29.0): block 0 is the null block and is never handed out. The free queue is reused
from its front; a freed block without a hash goes to the front, one with a hash to the back, so
cached content lives until every other block was reused. A cached block keeps its hash while it is
free, and loses it when it is handed out again. Blocks of equal hash are not merged: a lookup
gives the one that was cached first and still lives.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from sim.scheduler.block_hash import BlockHash

NULL_BLOCK = 0


class BlockPoolError(RuntimeError):
    """The pool was asked for what it cannot do, or its books do not balance."""


class BlockPool:
    """`num_gpu_blocks` blocks, of which `num_gpu_blocks - 1` can be held.

    `ref_cnt[b]` requests hold block b; it is in the free queue exactly if that is 0.
    """

    def __init__(self, num_gpu_blocks: int, enable_caching: bool) -> None:
        self.num_gpu_blocks = num_gpu_blocks
        self.enable_caching = enable_caching
        self.ref_cnt = [0] * num_gpu_blocks
        self._block_hash: list[BlockHash | None] = [None] * num_gpu_blocks
        # A dict that remembers its order is a doubly linked list with a C implementation.
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(1, num_gpu_blocks))
        self._cached: dict[BlockHash, dict[int, None]] = {}

    @property
    def num_free_blocks(self) -> int:
        """Blocks that nobody holds, cached or not."""
        return len(self._free)

    def get_cached_block(self, block_hash: BlockHash) -> int | None:
        """The block cached first under this hash that still has it; None if there is none."""
        blocks = self._cached.get(block_hash)
        return next(iter(blocks)) if blocks else None

    def get_new_blocks(self, num_blocks: int) -> list[int]:
        """Take blocks from the front of the free queue; what they cached is forgotten.

        Raises `BlockPoolError` if fewer are free: ask `num_free_blocks` first.
        """
        if num_blocks > len(self._free):
            raise BlockPoolError(f"{num_blocks} blocks asked for, {len(self._free)} are free")
        blocks = [self._free.popitem(last=False)[0] for _ in range(num_blocks)]
        for block in blocks:
            self.ref_cnt[block] = 1
            if self._block_hash[block] is not None:
                self._forget(block)
        return blocks

    def touch(self, blocks: Iterable[int]) -> None:
        """Hold cached blocks once more; those that were free leave the free queue."""
        for block in blocks:
            if self.ref_cnt[block] == 0:
                del self._free[block]
            self.ref_cnt[block] += 1

    def free_blocks(self, ordered_blocks: Iterable[int]) -> None:
        """Let go of blocks, given in the order in which they are to be reused."""
        unhashed: list[int] = []
        for block in ordered_blocks:
            self.ref_cnt[block] -= 1
            if self.ref_cnt[block]:
                continue
            if self._block_hash[block] is None:
                unhashed.append(block)
            else:
                self._free[block] = None
        for block in reversed(unhashed):
            self._free[block] = None
            self._free.move_to_end(block, last=False)

    def cache_full_blocks(self, blocks: Sequence[int], hashes: Sequence[BlockHash]) -> None:
        """Make blocks, held and without a hash, findable under these hashes."""
        for block, block_hash in zip(blocks, hashes, strict=True):
            self._block_hash[block] = block_hash
            self._cached.setdefault(block_hash, {})[block] = None

    def reset_prefix_cache(self) -> None:
        """Forget every hash."""
        self._block_hash = [None] * self.num_gpu_blocks
        self._cached.clear()

    def check(self) -> None:
        """Walk the pool; raises `BlockPoolError` with both figures if its books do not balance."""
        if any(count < 0 for count in self.ref_cnt):
            raise BlockPoolError(f"negative reference counts: {min(self.ref_cnt)}")
        unheld = {b for b in range(1, self.num_gpu_blocks) if self.ref_cnt[b] == 0}
        if unheld != set(self._free):
            raise BlockPoolError(
                f"{len(unheld)} blocks are held by nobody, {len(self._free)} are in the free queue"
            )
        hashed = {b for b, block_hash in enumerate(self._block_hash) if block_hash is not None}
        findable = [block for blocks in self._cached.values() for block in blocks]
        if len(findable) != len(hashed) or set(findable) != hashed:
            raise BlockPoolError(f"{len(hashed)} blocks have a hash, {len(findable)} can be found")
        for block_hash, blocks in self._cached.items():
            if not blocks or any(self._block_hash[block] != block_hash for block in blocks):
                raise BlockPoolError(f"blocks found under {block_hash:x} carry another hash")
        if self.ref_cnt[NULL_BLOCK] or NULL_BLOCK in self._free or NULL_BLOCK in hashed:
            raise BlockPoolError("the null block was handed out")

    def _forget(self, block: int) -> None:
        block_hash = self._block_hash[block]
        if block_hash is None:
            return
        self._block_hash[block] = None
        blocks = self._cached[block_hash]
        del blocks[block]
        if not blocks:
            del self._cached[block_hash]
