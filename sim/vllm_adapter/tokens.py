"""Token ids for content that is known by segments only."""

from __future__ import annotations

from sim.scheduler.block_hash import Segment, SegmentId

STOP_TOKEN_ID = 2
# Segment of the stop token where a prompt quotes it.
STOP_TOKEN_SEGMENT = "stop token"
_SEGMENT_BITS = 32


class TokenSpace:
    """Gives every token of every segment an id of its own; no model will ever see them."""

    def __init__(self) -> None:
        self._bases: dict[SegmentId, int] = {}

    def token_ids(self, segment_id: SegmentId, start: int, end: int) -> range:
        """Ids of the tokens `start` to `end` (exclusive) of a segment."""
        if segment_id == STOP_TOKEN_SEGMENT:
            return range(STOP_TOKEN_ID, STOP_TOKEN_ID + end - start)
        index = self._bases.setdefault(segment_id, len(self._bases) + 1)
        base = index << _SEGMENT_BITS
        return range(base + start, base + end)

    def prompt(self, segments: tuple[Segment, ...]) -> list[int]:
        """Ids of a whole prompt."""
        return [t for segment, length in segments for t in self.token_ids(segment, 0, length)]
