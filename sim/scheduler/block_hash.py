"""Content of a request without its tokens: segments, and the chained hashes of full blocks.

A prompt is a tuple of segments `(segment_id, num_tokens)`; a segment's first n tokens are always
the same n tokens, and no two segments share content. The output of a request is the segment
`output_segment(request_id)`. So two prefixes are equal exactly if they are the same pieces, and
the hash of a prefix can be computed from its pieces alone:

    hash(prefix) = base(piece) + tokens of the prefix inside its last piece
    base(piece)  = digest(hash of the prefix before the piece, segment id)

A block's hash is the hash of the prefix that ends with it, so it depends on everything before it,
as vLLM's hash (chained over parents) does. The digest is a 128-bit BLAKE2b: no collisions in
practice, the same in every process. A LoRA adapter is part of the root.
"""

from __future__ import annotations

from bisect import bisect_left
from hashlib import blake2b

SegmentId = int | str
Segment = tuple[SegmentId, int]
BlockHash = int

# Room for the position inside a piece, below the digest of what came before it.
_OFFSET_BITS = 40


def output_segment(request_id: int | str) -> str:
    """Segment id of the tokens that a request generates."""
    return f"out:{request_id}"


def own_segment(request_id: int | str) -> str:
    """Segment id of a prompt that shares its content with no other request."""
    return f"own:{request_id}"


def _piece_base(parent: BlockHash, segment_id: SegmentId) -> BlockHash:
    kind = "i" if isinstance(segment_id, int) else "s"
    digest = blake2b(f"{parent:x}/{kind}{segment_id}".encode(), digest_size=16).digest()
    return int.from_bytes(digest, "big") << _OFFSET_BITS


class ContentHashes:
    """Hashes of the prefixes of one request's tokens, known and still to come.

    The last piece is open-ended: the output. Empty segments carry no content and are left out.
    """

    __slots__ = ("_bases", "_starts")

    def __init__(
        self, prompt: tuple[Segment, ...], output_segment_id: SegmentId, lora_id: int = 0
    ) -> None:
        self._starts: list[int] = []
        self._bases: list[BlockHash] = []
        start = 0
        prefix = lora_id  # the root: what an empty prefix hashes to
        known = (segment for segment in prompt if segment[1])
        for segment_id, num_tokens in (*known, (output_segment_id, 0)):
            base = _piece_base(prefix, segment_id)
            self._starts.append(start)
            self._bases.append(base)
            start += num_tokens
            prefix = base + num_tokens

    def extents(
        self, first_block: int, end_block: int, block_size: int
    ) -> list[tuple[BlockHash, int, int]]:
        """The blocks `first_block` to `end_block` (exclusive) as `(base, first, end)` extents.

        A block belongs to the piece in which it ends. Two blocks are equal exactly if base and
        block number are: a base stands for everything before its piece.
        """
        extents: list[tuple[BlockHash, int, int]] = []
        piece = bisect_left(self._starts, (first_block + 1) * block_size) - 1
        while first_block < end_block:
            piece += 1
            is_last = piece == len(self._starts)
            end = end_block if is_last else min(self._starts[piece] // block_size, end_block)
            if end > first_block:
                extents.append((self._bases[piece - 1], first_block, end))
                first_block = end
        return extents

    @property
    def output_base(self) -> BlockHash:
        """Base of the piece that the request generates itself."""
        return self._bases[-1]

    @property
    def bases(self) -> list[BlockHash]:
        """Bases of all pieces, the output's last."""
        return self._bases

    def prefix_hash(self, num_tokens: int) -> BlockHash:
        """Hash of the first `num_tokens` (>= 1) tokens."""
        piece = bisect_left(self._starts, num_tokens) - 1
        return self._bases[piece] + num_tokens - self._starts[piece]

    def block_hashes(self, first_block: int, end_block: int, block_size: int) -> list[BlockHash]:
        """Hashes of the blocks `first_block` to `end_block` (exclusive)."""
        hashes: list[BlockHash] = []
        ends = range((first_block + 1) * block_size, end_block * block_size + 1, block_size)
        if not ends:
            return hashes
        piece = bisect_left(self._starts, ends[0]) - 1
        limits = (*self._starts[1:], ends[-1])
        for end in ends:
            while end > limits[piece] and piece < len(self._starts) - 1:
                piece += 1
            hashes.append(self._bases[piece] + end - self._starts[piece])
        return hashes
