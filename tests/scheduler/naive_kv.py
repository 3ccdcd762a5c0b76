"""A KV cache that is as plain as can be: lists, and prefixes written out token by token."""

from __future__ import annotations

from dataclasses import dataclass, field

Tokens = tuple[tuple[object, int], ...]  # (segment, position in it), one a token


@dataclass
class NaiveRequest:
    """Its tokens, how many of them are computed, and the numbers of its blocks."""

    tokens: list[tuple[object, int]]
    num_computed: int = 0
    blocks: list[int] = field(default_factory=list)
    num_hashed: int = 0  # of its blocks, from the front


class NaiveKV:
    """Blocks 1 to n - 1; `content[b]` is the whole prefix that a findable block b ends."""

    def __init__(self, num_blocks: int, block_size: int, drop_last_hit: bool) -> None:
        self.block_size = block_size
        self.drop_last_hit = drop_last_hit
        self.free = list(range(1, num_blocks))
        self.holders = dict.fromkeys(self.free, 0)
        self.content: dict[int, Tokens] = {}
        self.cached_at: dict[int, int] = {}
        self.clock = 0

    def hits(self, request: NaiveRequest) -> list[int]:
        found: list[int] = []
        for end in range(self.block_size, len(request.tokens), self.block_size):
            same = [b for b, c in self.content.items() if c == tuple(request.tokens[:end])]
            if not same:
                break
            found.append(min(same, key=lambda b: self.cached_at[b]))
        return found[:-1] if self.drop_last_hit else found

    def allocate(
        self,
        request: NaiveRequest,
        num_new: int,
        hits: list[int],
        lookahead: int,
        whole: bool,
        keep_free: int,
        max_len: int,
    ) -> bool:
        computed = request.num_computed + len(hits) * self.block_size
        wanted = self.blocks_for(min(computed + num_new + lookahead, max_len))
        needs = [wanted]
        if whole:
            needs.append(self.blocks_for(min(len(request.tokens), max_len)))
        held = len(request.blocks) + len(hits)
        unheld_hits = len([b for b in hits if b in self.free])
        if any(max(n - held, 0) + unheld_hits + keep_free > len(self.free) for n in needs):
            return False
        for block in hits:
            if block in self.free:
                self.free.remove(block)
            self.holders[block] += 1
        request.blocks += hits
        request.num_hashed = max(request.num_hashed, len(hits))
        for _ in range(wanted - held):
            block = self.free.pop(0)
            self.content.pop(block, None)
            self.holders[block] = 1
            request.blocks.append(block)
        self.make_findable(request, min(computed + num_new, len(request.tokens)))
        return True

    def make_findable(self, request: NaiveRequest, num_tokens: int) -> None:
        for index in range(request.num_hashed, num_tokens // self.block_size):
            block = request.blocks[index]
            self.content[block] = tuple(request.tokens[: (index + 1) * self.block_size])
            self.clock += 1
            self.cached_at[block] = self.clock
            request.num_hashed = index + 1

    def release(self, request: NaiveRequest) -> None:
        freed = []
        for block in reversed(request.blocks):
            self.holders[block] -= 1
            if not self.holders[block]:
                freed.append(block)
        self.free = (
            [b for b in freed if b not in self.content]
            + self.free
            + [b for b in freed if b in self.content]
        )
        request.blocks = []
        request.num_hashed = request.num_computed = 0

    def blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)
