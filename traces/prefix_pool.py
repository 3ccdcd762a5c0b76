"""How much of the prompts an ideal prefix cache would hold already, by the size of its pool.

Ideal: every request is served at its arrival, instantly, and nothing but prompts and their
outputs is in the pool. So a real run hits less, or more where its order of service helps it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from traces.request import Prompt, output_segment

POOL_TOKENS = (100_000, 300_000, 1_000_000, 3_000_000, 10_000_000, 30_000_000)

_Piece = tuple[int, int]


@dataclass(slots=True)
class HitCount:
    """Hits of one pool; `pool_tokens` None is a pool without bounds.

    A block is hit if the pool holds it and all before it. `hit_tokens` counts whole blocks, and
    never a prompt's last token, which must be computed to get an answer.
    """

    pool_tokens: int | None
    hit_tokens: int = 0
    hit_blocks: int = 0

    def add(self, matched: int, length: int, block_size: int) -> None:
        """Count a prompt of which the first `matched` tokens are in the pool."""
        self.hit_tokens += min(matched, length - 1) // block_size * block_size
        is_whole = matched == length
        self.hit_blocks += -(-length // block_size) if is_whole else matched // block_size


@dataclass(slots=True)
class PrefixPools:
    """Pools of several sizes over the same requests, the least recently used dropped first.

    A request's first segment counts as more recently used than its last, as vLLM frees blocks
    from the end. What is dropped is the end of the segment used least recently; where a segment
    is a block, this is the eviction of blocks.
    """

    block_size: int
    num_prompt_tokens: int = 0
    num_blocks: int = 0
    unbounded: HitCount = field(default_factory=lambda: HitCount(None))
    bounded: tuple[HitCount, ...] = field(
        default_factory=lambda: tuple(HitCount(size) for size in POOL_TOKENS)
    )
    _numbers: dict[tuple[int, int, int | str], int] = field(default_factory=dict)
    _held: dict[int, int] = field(default_factory=dict)
    _recent: list[OrderedDict[int, int]] = field(default_factory=list)
    _used: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._recent = [OrderedDict() for _ in self.bounded]
        self._used = [0 for _ in self.bounded]

    def serve(
        self,
        request_id: int,
        prompt: Prompt,
        length: int,
        num_output_tokens: int,
        lora_id: int = 0,
    ) -> None:
        """Look a request's prompt up in every pool, then put prompt and output in.

        KV entries of different LoRA adapters are never equal.
        """
        self.num_prompt_tokens += length
        self.num_blocks += -(-length // self.block_size)
        if not prompt:
            return
        root = -1 - lora_id
        pieces = self._pieces(prompt, root)
        self.unbounded.add(_matched(pieces, self._held), length, self.block_size)
        for count, recent in zip(self.bounded, self._recent, strict=True):
            count.add(_matched(pieces, recent), length, self.block_size)
        # The last output token is returned, but never computed on.
        output = (output_segment(request_id), num_output_tokens - 1)
        pieces = self._pieces((*prompt, output), root) if num_output_tokens > 1 else pieces
        self._put(pieces)

    def _pieces(self, prompt: Iterable[tuple[int | str, int]], root: int) -> list[_Piece]:
        """Segments numbered by what they are and all that comes before them."""
        pieces: list[_Piece] = []
        before = (root, 0)
        numbers = self._numbers
        for segment_id, num_tokens in prompt:
            number = numbers.setdefault((*before, segment_id), len(numbers))
            before = (number, num_tokens)
            pieces.append(before)
        return pieces

    def _put(self, pieces: Sequence[_Piece]) -> None:
        held = self._held
        for number, num_tokens in pieces:
            if held.get(number, 0) < num_tokens:
                held[number] = num_tokens
        for place, count in enumerate(self.bounded):
            recent = self._recent[place]
            used = self._used[place]
            for number, num_tokens in reversed(pieces):
                old = recent.pop(number, 0)
                recent[number] = max(old, num_tokens)
                used += recent[number] - old
            self._used[place] = _evict(recent, used, count.pool_tokens or 0)


def _matched(pieces: Sequence[_Piece], held: dict[int, int]) -> int:
    """Leading tokens of the pieces that are held."""
    matched = 0
    for number, num_tokens in pieces:
        there = held.get(number, 0)
        if there < num_tokens:
            return matched + there
        matched += num_tokens
    return matched


def _evict(recent: OrderedDict[int, int], used: int, limit: int) -> int:
    while used > limit:
        number, num_tokens = recent.popitem(last=False)
        excess = used - limit
        if num_tokens > excess:
            recent[number] = num_tokens - excess
            recent.move_to_end(number, last=False)
        used -= min(num_tokens, excess)
    return used
