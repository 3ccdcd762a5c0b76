"""A made-up trace from its parts: arrivals, lengths, system prompts, priorities."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from traces.arrays import IntArray
from traces.errors import TraceError
from traces.generators.arrivals import ArrivalProcess
from traces.generators.lengths import LengthModel
from traces.generators.prefixes import SystemPrompts
from traces.request import Prompt
from traces.source import TraceSource
from traces.trace import Trace


def generate(
    *,
    num_requests: int,
    arrivals: ArrivalProcess,
    lengths: LengthModel,
    rng: np.random.Generator,
    system_prompts: SystemPrompts | None = None,
    priority_weights: Mapping[int, float] | None = None,
) -> Trace:
    """A trace of `num_requests` requests, the first at 0.

    Each part draws from its own child of `rng`, so that another arrival process leaves the
    lengths as they were. The same generator state gives the same trace.

    Args:
        num_requests: at least 1.
        arrivals: when requests come.
        lengths: how long they are (without system prompts).
        rng: where all chance comes from; its children are spawned, so a second call with the
            same object gives another trace.
        system_prompts: shared beginnings; None for none.
        priority_weights: weight of each priority, need not sum to 1; None for all 0.

    Raises:
        TraceError: a bad number of requests or bad weights.
    """
    if num_requests < 1:
        raise TraceError(f"num_requests: {num_requests!r} is wrong; it must be at least 1")
    arrival_rng, length_rng, prefix_rng, priority_rng = rng.spawn(4)
    arrival_s = arrivals.times_s(num_requests, arrival_rng)
    num_prompt_tokens, num_output_tokens = lengths.sample(num_requests, length_rng)
    prompts: tuple[Prompt, ...] | None = None
    if system_prompts is not None:
        chosen = system_prompts.choose(num_requests, prefix_rng)
        num_prompt_tokens, prompts = system_prompts.apply(chosen, num_prompt_tokens)
    return Trace.from_columns(
        arrival_s,
        num_prompt_tokens,
        num_output_tokens,
        priority=_priorities(priority_weights or {0: 1.0}, num_requests, priority_rng),
        prompts=prompts,
        source=TraceSource(name="generated", format="generated", num_rows_read=num_requests),
    )


def _priorities(
    weights: Mapping[int, float], num_requests: int, rng: np.random.Generator
) -> IntArray:
    """Priorities drawn by weight, in ascending order so that the mapping's order is nothing."""
    levels = np.array(sorted(weights), dtype=np.int64)
    shares = np.array([weights[level] for level in levels.tolist()], dtype=np.float64)
    if not (np.all(np.isfinite(shares)) and np.all(shares >= 0) and shares.sum() > 0):
        raise TraceError(
            f"priority_weights: {dict(weights)!r} is wrong; weights must be >= 0, one positive"
        )
    return levels[rng.choice(len(levels), size=num_requests, p=shares / shares.sum())]
