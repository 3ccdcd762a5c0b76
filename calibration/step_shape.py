"""What a cost model may see of one batch."""

from typing import NamedTuple


class StepShape(NamedTuple):
    """Token and context counts of one scheduled batch; no request, no identity, no content.

    A named tuple, because one is made every step: building it and unpacking it in a cost model
    costs about half of what a frozen dataclass costs.
    """

    num_tokens: int
    """Tokens computed in the step, all pieces together: the rows of every GEMM."""
    num_logits: int
    """Rows of lm_head and sampler: requests that emit a token."""
    num_decodes: int
    """Pieces of exactly one token."""
    decode_context_tokens: int
    """KV entries read by those pieces, summed: tokens computed before, plus one, of each."""
    chunks: tuple[tuple[int, int], ...] = ()
    """Pieces of more than one token: (new tokens, tokens computed before)."""


def decode_shape(num_decodes: int, decode_context_tokens: int) -> StepShape:
    """Return the shape of a step in which every request decodes one token."""
    return StepShape(num_decodes, num_decodes, num_decodes, decode_context_tokens, ())
