"""Generator sections to traces."""

from typing import Any

import numpy as np

import traces
from sim.config.schema import (
    ConversationsSection,
    DiurnalArrivalsSection,
    GapArrivalsSection,
    GeneratorSection,
    LengthsSection,
    OnOffArrivalsSection,
    PauseSection,
    PoissonArrivalsSection,
    ServeGenSection,
    StagedArrivalsSection,
)
from sim.errors import StudyError
from traces import Trace, TraceError

_DRAWN = ("prompt_tokens", "output_tokens")

AnyArrivals = (
    GapArrivalsSection
    | PoissonArrivalsSection
    | OnOffArrivalsSection
    | DiurnalArrivalsSection
    | StagedArrivalsSection
)


def generated(section: GeneratorSection, rng: np.random.Generator) -> Trace:
    """Independent requests.

    Raises:
        StudyError: keys that exclude or lack each other.
        TraceError: a value that the generator refuses.
    """
    arrivals = _generator_arrivals(section)
    if section.system_prompts is not None and section.prefix_tree is not None:
        raise StudyError("trace.generator: system_prompts and prefix_tree: give one of them")
    return traces.generate(
        num_requests=_num_requests(section.num_requests, arrivals),
        arrivals=arrivals,
        lengths=_generator_lengths(section),
        system_prompts=_prefixes(section),
        priority_weights=section.priority_weights,
        tenant_weights=section.tenant_weights,
        lora_weights=section.lora_weights,
        rng=rng,
    )


def conversations(section: ConversationsSection, rng: np.random.Generator) -> Trace:
    """Sessions of turns.

    Raises:
        TraceError: a value that the generator refuses.
    """
    sessions_rng, mix_rng = rng.spawn(2)
    maker = traces.Conversations(
        first_tokens=_lengths("first_tokens", section.first_tokens),
        output_tokens=_lengths("output_tokens", section.output_tokens),
        user_tokens=_lengths("user_tokens", section.user_tokens),
        think_time=_pause(section.think_time),
        mean_turns=section.mean_turns,
        system_tokens=section.system_tokens,
        tool_share=section.tool_share,
        tool_tokens=_lengths("tool_tokens", section.tool_tokens),
        tool_time=_pause(section.tool_time),
        max_context_tokens=section.max_context_tokens,
        nominal_s_per_token=section.nominal_s_per_token,
    )
    trace = maker.generate(section.num_sessions, arrival_process(section.arrivals), sessions_rng)
    return traces.with_mix(
        trace,
        mix_rng,
        priority_weights=section.priority_weights,
        tenant_weights=section.tenant_weights,
        lora_weights=section.lora_weights,
    )


def servegen(section: ServeGenSection, rng: np.random.Generator) -> Trace:
    """Requests of ServeGen clients.

    Raises:
        TraceError: a folder without clients, or a file that is wrong.
    """
    return traces.from_servegen(
        section.path, section.start_s, section.end_s, rng, rate_scale=section.rate_scale
    )


def arrival_process(section: AnyArrivals) -> Any:
    """The arrival process of a section."""
    if isinstance(section, GapArrivalsSection):
        kind = traces.WeibullArrivals if section.process == "weibull" else traces.GammaArrivals
        return kind(section.rate_per_s, section.cv)
    if isinstance(section, PoissonArrivalsSection):
        return traces.PoissonArrivals(section.rate_per_s)
    if isinstance(section, OnOffArrivalsSection):
        return traces.OnOffArrivals(
            section.on_rate_per_s, section.on_s, section.off_s, section.off_rate_per_s
        )
    if isinstance(section, DiurnalArrivalsSection):
        return traces.DiurnalArrivals(
            section.rate_per_s, section.swing, section.peak_at_s, section.period_s
        )
    stages = tuple(traces.Stage(each.rate_per_s, each.duration_s) for each in section.stages)
    return traces.StagedArrivals(stages)


def _generator_arrivals(section: GeneratorSection) -> Any:
    if (section.arrivals is None) == (section.rate_per_s is None):
        raise StudyError("trace.generator: give one of rate_per_s and arrivals")
    if section.arrivals is not None:
        return arrival_process(section.arrivals)
    return traces.GammaArrivals(section.rate_per_s or 0.0, section.cv)


def _num_requests(wanted: int | None, arrivals: Any) -> int:
    if wanted is not None:
        return wanted
    if isinstance(arrivals, traces.StagedArrivals):
        return arrivals.num_requests
    raise StudyError("trace.generator.num_requests: missing; it has no default")


def _generator_lengths(section: GeneratorSection) -> traces.LengthModel:
    drawn = (section.prompt_tokens, section.output_tokens)
    if section.lengths_from is not None:
        if drawn != (None, None):
            raise StudyError(
                "trace.generator: lengths_from takes the place of prompt_tokens and output_tokens"
            )
        return traces.EmpiricalLengths(traces.load(section.lengths_from), section.joint)
    for key, lengths in zip(_DRAWN, drawn, strict=True):
        if lengths is None:
            raise StudyError(f"trace.generator.{key}: missing; it has no default")
    prompt, output = (
        _lengths(key, lengths) for key, lengths in zip(_DRAWN, drawn, strict=True) if lengths
    )
    return traces.LognormalLengths(prompt, output)


def _prefixes(section: GeneratorSection) -> traces.SystemPrompts | traces.PrefixTree | None:
    if section.prefix_tree is not None:
        tree = section.prefix_tree
        return traces.PrefixTree(tuple(tree.branching), tuple(tree.num_tokens), tree.zipf_exponent)
    if section.system_prompts is None:
        return None
    shared = section.system_prompts
    return traces.SystemPrompts(shared.share, tuple(shared.num_tokens), shared.zipf_exponent)


def _lengths(key: str, section: LengthsSection) -> traces.Lognormal:
    highest = section.highest or traces.MAX_NUM_TOKENS
    try:
        return traces.Lognormal(section.median, section.sigma, section.lowest, highest)
    except TraceError as error:
        raise TraceError(f"{key}: {error}") from error


def _pause(section: PauseSection) -> traces.Pause:
    return traces.Pause(section.median_s, section.sigma)
