"""Shared system prompts: some requests begin with the same content as others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traces.arrays import IntArray
from traces.errors import TraceError
from traces.request import Prompt

_NONE = -1


@dataclass(frozen=True, slots=True)
class SystemPrompts:
    """A share of requests begins with one of some shared segments.

    The k-th of the segments (from 0) is chosen with weight 1 / (k + 1)^`zipf_exponent`. It
    stands in front of the request's own prompt and adds to its length.

    Attributes:
        share: probability that a request has a system prompt, 0 to 1.
        num_tokens: length of each system prompt, most popular first; at least one.
        zipf_exponent: 0 makes all equally popular.

    Raises:
        TraceError: a value outside these ranges.
    """

    share: float
    num_tokens: tuple[int, ...]
    zipf_exponent: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise TraceError(f"share: {self.share!r} is wrong; it must be from 0 to 1")
        if not self.num_tokens or min(self.num_tokens) < 1:
            raise TraceError(
                f"num_tokens: {self.num_tokens!r} is wrong; it must hold lengths of at least 1"
            )
        if not 0 <= self.zipf_exponent < float("inf"):
            raise TraceError(
                f"zipf_exponent: {self.zipf_exponent!r} is wrong; it must be finite and >= 0"
            )

    def choose(self, num_requests: int, rng: np.random.Generator) -> IntArray:
        """Index of each request's system prompt; -1 for none."""
        has_one = rng.random(num_requests) < self.share
        weights = np.arange(1, len(self.num_tokens) + 1) ** -self.zipf_exponent
        chosen = rng.choice(len(weights), size=num_requests, p=weights / weights.sum())
        return np.where(has_one, chosen, _NONE)

    def apply(self, chosen: IntArray, own_tokens: IntArray) -> tuple[IntArray, tuple[Prompt, ...]]:
        """Prompt lengths with the system prompts added, and the segments of each prompt."""
        lengths = np.array([*self.num_tokens, 0], dtype=np.int64)[chosen]
        prompts = tuple(
            () if which == _NONE else self._prompt(which, request_id, tokens)
            for request_id, (which, tokens) in enumerate(
                zip(chosen.tolist(), own_tokens.tolist(), strict=True)
            )
        )
        return own_tokens + lengths, prompts

    def _prompt(self, which: int, request_id: int, own_tokens: int) -> Prompt:
        return (f"system-{which}", self.num_tokens[which]), (f"prompt-{request_id}", own_tokens)
