"""The terms of a step's time: counts of its shape, each times a coefficient in seconds.

The token count acts through straight lines between knots (products work in tiles, and small ones
are bound by memory); everything else is proportional:

- a logit row;
- a chunk; a pair of a chunk's token and one computed before; a pair within a chunk;
- a decode; a KV entry that a decode reads.
"""

from collections.abc import Sequence

import numpy as np

from calibration.cost_model import FloatArray
from calibration.step_shape import StepShape

PROPORTIONAL = (
    "a logit row",
    "a chunk",
    "a token pair with earlier context",
    "a token pair in a chunk",
    "a decode",
    "a KV entry of a decode",
)
_KNOTS = (
    *(1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768),
    *(1 << power for power in range(10, 18)),
)
_MIN_STEPS = 8


def chunk_pairs(new: int, computed: int) -> tuple[int, int]:
    """Return a chunk's pairs of tokens: with earlier context, and among its own."""
    return new * computed, new * (new + 1) // 2


def proportional_terms(shape: StepShape) -> list[int]:
    """Return the counts of `PROPORTIONAL`."""
    pairs = [chunk_pairs(new, computed) for new, computed in shape.chunks]
    return [
        shape.num_logits,
        len(pairs),
        sum(earlier for earlier, _ in pairs),
        sum(own for _, own in pairs),
        shape.num_decodes,
        shape.decode_context_tokens,
    ]


def choose_knots(token_counts: Sequence[int]) -> list[int]:
    """Return knots from the least to the largest token count, each with steps on both sides."""
    counts = np.sort(token_counts)
    lowest, highest = int(counts[0]), int(counts[-1])
    knots = [lowest]
    for knot in (*(k for k in _KNOTS if lowest < k < highest), highest):
        between = np.count_nonzero((counts > knots[-1]) & (counts <= knot))
        if between >= _MIN_STEPS:
            knots.append(knot)
    if knots[-1] != highest:
        knots = [*knots[:-1], highest] if len(knots) > 1 else [lowest, highest]
    return knots


def matrix(shapes: Sequence[StepShape], knots: Sequence[int]) -> FloatArray:
    """Return a row a shape: the weight of each knot, then the proportional terms."""
    tokens = np.array([shape.num_tokens for shape in shapes], dtype=np.float64)
    hats = [np.interp(tokens, knots, row) for row in np.eye(len(knots))]
    rest = np.array([proportional_terms(shape) for shape in shapes], dtype=np.float64)
    return np.column_stack([*hats, rest])
