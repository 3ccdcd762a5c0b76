"""Length models: how long prompts and outputs are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from traces.arrays import IntArray
from traces.errors import TraceError
from traces.generators.arrivals import check_positive
from traces.request import MAX_NUM_TOKENS
from traces.trace import Trace


class LengthModel(Protocol):
    """Pairs of prompt and output lengths, drawn from the generator handed in."""

    def sample(self, num_requests: int, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
        """Prompt and output tokens of `num_requests` requests, each at least 1."""


@dataclass(frozen=True, slots=True)
class FixedLengths:
    """All requests alike.

    Raises:
        TraceError: a length outside 1 to `MAX_NUM_TOKENS`.
    """

    num_prompt_tokens: int
    num_output_tokens: int

    def __post_init__(self) -> None:
        _check_length("num_prompt_tokens", self.num_prompt_tokens)
        _check_length("num_output_tokens", self.num_output_tokens)

    def sample(self, num_requests: int, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
        """Constant columns; draws nothing."""
        return (
            np.full(num_requests, self.num_prompt_tokens, dtype=np.int64),
            np.full(num_requests, self.num_output_tokens, dtype=np.int64),
        )


@dataclass(frozen=True, slots=True)
class Lognormal:
    """A lognormal length: `median` tokens, log standard deviation `sigma`, cut to a range.

    Its mean, before cutting, is median * exp(sigma^2 / 2).

    Raises:
        TraceError: median not positive, sigma negative, or an empty range.
    """

    median: float
    sigma: float
    lowest: int = 1
    highest: int = MAX_NUM_TOKENS

    def __post_init__(self) -> None:
        check_positive("median", self.median)
        if not (math.isfinite(self.sigma) and self.sigma >= 0):
            raise TraceError(f"sigma: {self.sigma!r} is wrong; it must be finite and >= 0")
        _check_length("lowest", self.lowest)
        _check_length("highest", self.highest)
        if self.lowest > self.highest:
            raise TraceError(f"lowest: {self.lowest} is wrong; it must not pass {self.highest}")

    def sample(self, num_requests: int, rng: np.random.Generator) -> IntArray:
        """Rounded draws, those outside the range set to its ends."""
        drawn = rng.lognormal(math.log(self.median), self.sigma, num_requests)
        return np.rint(np.clip(drawn, self.lowest, self.highest)).astype(np.int64)


@dataclass(frozen=True, slots=True)
class LognormalLengths:
    """Prompt and output lengths lognormal and independent of each other."""

    prompt: Lognormal
    output: Lognormal

    def sample(self, num_requests: int, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
        """Prompts first, then outputs."""
        return self.prompt.sample(num_requests, rng), self.output.sample(num_requests, rng)


@dataclass(frozen=True, slots=True)
class EmpiricalLengths:
    """Lengths drawn with replacement from a trace.

    `joint`: prompt and output of a request stay together; else each is drawn by itself.
    """

    trace: Trace
    joint: bool = True

    def sample(self, num_requests: int, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
        """Lengths of rows of the trace, each row equally likely."""
        rows = rng.integers(len(self.trace), size=num_requests)
        others = rows if self.joint else rng.integers(len(self.trace), size=num_requests)
        return self.trace.num_prompt_tokens[rows], self.trace.num_output_tokens[others]


def _check_length(name: str, value: int) -> None:
    if not 1 <= value <= MAX_NUM_TOKENS:
        raise TraceError(f"{name}: {value!r} is wrong; it must be from 1 to {MAX_NUM_TOKENS}")
