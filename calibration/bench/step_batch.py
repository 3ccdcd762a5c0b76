"""One batch as the decoder takes it: rows of tokens, where they go, what they see."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from calibration.step_shape import StepShape

IntArray = npt.NDArray[np.int64]


class Piece(NamedTuple):
    """Part of a request in a step: tokens computed now, those before, and its blocks in order."""

    token_ids: IntArray
    num_computed: int
    block_ids: IntArray
    needs_logits: bool = True

    @property
    def context(self) -> int:
        """Tokens that its last token sees, itself included."""
        return self.num_computed + len(self.token_ids)


@dataclass(frozen=True, slots=True)
class StepBatch:
    """Pieces of one token first, then chunks; the rows of the model's input in that order.

    `slots[i]` is where row i's key and value go: block times block size plus offset.
    `logit_rows` are the rows whose next token is wanted, in the order of the pieces.
    """

    pieces: tuple[Piece, ...]
    num_decodes: int
    token_ids: IntArray
    positions: IntArray
    slots: IntArray
    logit_rows: IntArray

    @property
    def shape(self) -> StepShape:
        """What a cost model may see of it."""
        decodes, chunks = self.pieces[: self.num_decodes], self.pieces[self.num_decodes :]
        return StepShape(
            num_tokens=len(self.token_ids),
            num_logits=len(self.logit_rows),
            num_decodes=self.num_decodes,
            decode_context_tokens=sum(piece.context for piece in decodes),
            chunks=tuple((len(piece.token_ids), piece.num_computed) for piece in chunks),
            decode_max_context_tokens=max((piece.context for piece in decodes), default=0),
        )


def pack(pieces: Sequence[Piece], block_size: int) -> StepBatch:
    """Return the batch of some pieces; those of one token must come first."""
    counts = np.array([len(piece.token_ids) for piece in pieces], dtype=np.int64)
    ends = np.cumsum(counts)
    computed = np.array([piece.num_computed for piece in pieces], dtype=np.int64)
    positions = np.arange(ends[-1], dtype=np.int64) + np.repeat(computed - (ends - counts), counts)
    num_decodes = int(np.count_nonzero(counts == 1))
    blocks = np.empty(ends[-1], dtype=np.int64)
    for piece, start, end in zip(pieces, (ends - counts).tolist(), ends.tolist(), strict=True):
        blocks[start:end] = piece.block_ids[positions[start:end] // block_size]
    wanted = np.array([piece.needs_logits for piece in pieces], dtype=np.bool_)
    return StepBatch(
        pieces=tuple(pieces),
        num_decodes=num_decodes,
        token_ids=np.concatenate([piece.token_ids for piece in pieces]),
        positions=positions,
        slots=blocks * block_size + positions % block_size,
        logit_rows=(ends - 1)[wanted],
    )
