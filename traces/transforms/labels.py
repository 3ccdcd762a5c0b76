"""Transforms that say anew who sends requests and how urgent they are, or how long they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import numpy as np

from traces.arrays import IntArray
from traces.errors import TraceError
from traces.labels import Labels
from traces.prompt_table import PromptTable
from traces.request import Prompt
from traces.trace import Trace
from traces.transforms.sessions import session_numbers

Key = TypeVar("Key", int, str)


def draw(
    name: str, weights: Mapping[Key, float], number: int, rng: np.random.Generator
) -> tuple[list[Key], IntArray]:
    """Keys in ascending order, so that the mapping's order is nothing, and `number` drawn places.

    Raises:
        TraceError: weights that are negative, not finite (or their sum is not), or all zero.
    """
    keys = sorted(weights)
    shares = np.array([weights[key] for key in keys], dtype=np.float64)
    with np.errstate(over="ignore"):
        total = shares.sum()
    if not (len(shares) and np.isfinite(total) and (shares >= 0).all() and shares.any()):
        raise TraceError(
            f"{name}: {dict(weights)!r} is wrong; weights must be >= 0, at least one positive, "
            "with a finite sum"
        )
    return keys, rng.choice(len(keys), size=number, p=shares / shares.sum())


def with_priorities(trace: Trace, weights: Mapping[int, float], rng: np.random.Generator) -> Trace:
    """Priorities drawn by weight, one a session (one a request where there are none).

    Raises:
        TraceError: bad weights.
    """
    numbers = session_numbers(trace)
    levels, drawn = draw("priority_weights", weights, int(numbers.max()) + 1, rng)
    priority = np.array(levels, dtype=np.int64)[drawn][numbers]
    return trace.with_columns(f"with_priorities({dict(weights)!r})", priority=priority)


def map_priorities(trace: Trace, new_of_old: Mapping[int, int]) -> Trace:
    """Priorities renamed; those not in the mapping stay."""
    priority = trace.priority.copy()
    for old, new in new_of_old.items():
        priority[trace.priority == old] = new
    return trace.with_columns(f"map_priorities({dict(new_of_old)!r})", priority=priority)


def with_tenants(trace: Trace, weights: Mapping[str, float], rng: np.random.Generator) -> Trace:
    """Tenants drawn by weight, one a session (one a request where there are none).

    Raises:
        TraceError: bad weights.
    """
    numbers = session_numbers(trace)
    names, drawn = draw("tenant_weights", weights, int(numbers.max()) + 1, rng)
    return trace.with_columns(
        f"with_tenants({dict(weights)!r})", tenant=Labels(drawn[numbers], names)
    )


def cap_lengths(
    trace: Trace, max_prompt_tokens: int | None = None, max_output_tokens: int | None = None
) -> Trace:
    """Longer prompts and outputs cut to the given length; a prompt keeps its beginning.

    Raises:
        TraceError: a length below 1.
    """
    for name, value in (("prompt", max_prompt_tokens), ("output", max_output_tokens)):
        if value is not None and value < 1:
            raise TraceError(f"max_{name}_tokens: {value!r} is wrong; it must be at least 1")
    columns: dict[str, object] = {}
    if max_prompt_tokens is not None:
        columns["num_prompt_tokens"] = np.minimum(trace.num_prompt_tokens, max_prompt_tokens)
        if trace.prompts is not None:
            columns["prompts"] = PromptTable.from_prompts(
                cut(prompt, max_prompt_tokens) for prompt in trace.prompts
            )
    if max_output_tokens is not None:
        columns["num_output_tokens"] = np.minimum(trace.num_output_tokens, max_output_tokens)
    what = f"cap_lengths(prompt={max_prompt_tokens}, output={max_output_tokens})"
    return trace.with_columns(what, **columns)


def cut(prompt: Prompt, num_tokens: int) -> Prompt:
    """The first tokens of a prompt."""
    kept = []
    for segment_id, length in prompt:
        if num_tokens <= 0:
            break
        kept.append((segment_id, min(length, num_tokens)))
        num_tokens -= length
    return tuple(kept)
