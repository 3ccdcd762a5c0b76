"""A made-up trace from its parts: arrivals, lengths, system prompts, priorities."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from traces.arrays import IntArray
from traces.errors import TraceError
from traces.generators.arrivals import ArrivalProcess
from traces.generators.lengths import LengthModel
from traces.generators.prefixes import SystemPrompts
from traces.generators.tree import PrefixTree
from traces.labels import Labels
from traces.request import Prompt
from traces.source import TraceSource
from traces.trace import Trace
from traces.transforms.labels import draw
from traces.transforms.sessions import session_numbers


def generate(
    *,
    num_requests: int,
    arrivals: ArrivalProcess,
    lengths: LengthModel,
    rng: np.random.Generator,
    system_prompts: SystemPrompts | PrefixTree | None = None,
    priority_weights: Mapping[int, float] | None = None,
    tenant_weights: Mapping[str, float] | None = None,
    lora_weights: Mapping[int, float] | None = None,
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
        tenant_weights: weight of each tenant; None for none.
        lora_weights: weight of each LoRA adapter, 0 the base model; None for no adapters.

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
    trace = Trace.from_columns(
        arrival_s,
        num_prompt_tokens,
        num_output_tokens,
        priority=_drawn(
            "priority_weights", priority_weights or {0: 1.0}, num_requests, priority_rng
        ),
        prompts=prompts,
        source=TraceSource(name="generated", format="generated", num_rows_read=num_requests),
    )
    return with_mix(trace, rng, tenant_weights=tenant_weights, lora_weights=lora_weights)


def with_mix(
    trace: Trace,
    rng: np.random.Generator,
    *,
    priority_weights: Mapping[int, float] | None = None,
    tenant_weights: Mapping[str, float] | None = None,
    lora_weights: Mapping[int, float] | None = None,
) -> Trace:
    """The trace with priorities, tenants and adapters drawn by weight, one a session.

    None leaves them as they are. The source stays: this is part of making a trace.

    Raises:
        TraceError: bad weights.
    """
    if priority_weights is None and tenant_weights is None and lora_weights is None:
        return trace
    numbers = session_numbers(trace)
    number = int(numbers.max()) + 1
    priority_rng, tenant_rng, lora_rng = rng.spawn(3)
    columns = trace.columns()
    if priority_weights is not None:
        levels = _drawn("priority_weights", priority_weights, number, priority_rng)
        columns["priority"] = levels[numbers]
    if tenant_weights is not None:
        names, places = draw("tenant_weights", tenant_weights, number, tenant_rng)
        columns["tenant"] = Labels(places[numbers], names)
    if lora_weights is not None:
        columns["lora_id"] = _drawn("lora_weights", lora_weights, number, lora_rng)[numbers]
    return Trace.from_columns(**columns, source=trace.source)


def _drawn(
    name: str, weights: Mapping[int, float], number: int, rng: np.random.Generator
) -> IntArray:
    levels, places = draw(name, weights, number, rng)
    return np.array(levels, dtype=np.int64)[places]
