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
    decode_max_context_tokens: int = 0
    """The most KV entries that one of the pieces of one token reads; 0: not known, no skew."""


def decode_shape(
    num_decodes: int, decode_context_tokens: int, decode_max_context_tokens: int = 0
) -> StepShape:
    """Return the shape of a step in which every request decodes one token."""
    return StepShape(
        num_decodes, num_decodes, num_decodes, decode_context_tokens, (), decode_max_context_tokens
    )


def later_shape(first: StepShape, num_steps: int) -> StepShape:
    """Return the shape of a pure decode step `num_steps` after `first`: all contexts have grown."""
    longest = first.decode_max_context_tokens
    return decode_shape(
        first.num_decodes,
        first.decode_context_tokens + num_steps * first.num_decodes,
        longest + num_steps if longest else 0,
    )
