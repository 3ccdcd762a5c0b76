"""Prefix trees: prompts that share beginnings of several lengths, as few-shot prompts do."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traces.arrays import IntArray
from traces.errors import TraceError
from traces.request import Prompt


@dataclass(frozen=True, slots=True)
class PrefixTree:
    """Every request takes a path from the root; each node on it is a shared segment.

    Level i has `branching[i]` children under each node of the level before, of `num_tokens[i]`
    tokens each; the k-th child (from 0) is taken with weight 1 / (k + 1)^`zipf_exponent`. The
    request's own prompt follows, and the path adds to its length.

    Raises:
        TraceError: levels of unequal number, or a value outside its range.
    """

    branching: tuple[int, ...]
    num_tokens: tuple[int, ...]
    zipf_exponent: float = 0.0

    def __post_init__(self) -> None:
        if not self.branching or len(self.branching) != len(self.num_tokens):
            raise TraceError(
                f"branching: {self.branching!r} is wrong; it must have a number for each of "
                f"num_tokens {self.num_tokens!r}"
            )
        if min(self.branching) < 1 or min(self.num_tokens) < 1:
            raise TraceError("branching and num_tokens must hold numbers of at least 1")
        if not 0 <= self.zipf_exponent < float("inf"):
            raise TraceError(
                f"zipf_exponent: {self.zipf_exponent!r} is wrong; it must be finite and >= 0"
            )

    def choose(self, num_requests: int, rng: np.random.Generator) -> IntArray:
        """The child taken on each level, a row a request."""
        columns = []
        for width in self.branching:
            weights = np.arange(1, width + 1) ** -self.zipf_exponent
            columns.append(rng.choice(width, size=num_requests, p=weights / weights.sum()))
        return np.stack(columns, axis=1)

    def apply(self, chosen: IntArray, own_tokens: IntArray) -> tuple[IntArray, tuple[Prompt, ...]]:
        """Prompt lengths with the paths added, and the segments of each prompt."""
        prompts = tuple(
            (*self.path(path), (f"prompt-{row}", tokens))
            for row, (path, tokens) in enumerate(
                zip(chosen.tolist(), own_tokens.tolist(), strict=True)
            )
        )
        return own_tokens + sum(self.num_tokens), prompts

    def path(self, choices: list[int]) -> Prompt:
        """The shared segments of one path."""
        names = ["tree-" + ".".join(map(str, choices[: i + 1])) for i in range(len(choices))]
        return tuple(zip(names, self.num_tokens, strict=True))
