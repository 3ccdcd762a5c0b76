"""The trace section to a `Trace`: load or generate, then transform."""

import traces
from sim.config.schema import (
    GeneratorSection,
    LengthsSection,
    SystemPromptsSection,
    TraceSection,
)
from sim.errors import StudyError
from sim.rng import Streams
from traces import Trace


def resolve_trace(section: TraceSection, streams: Streams) -> Trace:
    """Load the study's requests and apply its transforms.

    Raises:
        StudyError: no source or two, or transforms that exclude each other.
        TraceError: the trace itself is missing or wrong.
    """
    _check_section(section)
    trace = _source(section, streams)
    if section.limit is not None:
        trace = traces.limit(trace, section.limit)
    if section.rate_scale is not None:
        trace = traces.scale_rate(trace, section.rate_scale)
    if section.poisson_rate_per_s is not None:
        rng = streams.rng("arrivals")
        trace = traces.with_poisson_arrivals(trace, section.poisson_rate_per_s, rng)
    return trace


def _source(section: TraceSection, streams: Streams) -> Trace:
    if section.path is not None:
        return traces.load(section.path, format=section.format)
    if section.generator is not None:
        return _generate(section.generator, streams)
    return traces.sample()


def _generate(section: GeneratorSection, streams: Streams) -> Trace:
    return traces.generate(
        num_requests=section.num_requests,
        arrivals=traces.GammaArrivals(section.rate_per_s, section.cv),
        lengths=traces.LognormalLengths(
            prompt=_lengths(section.prompt_tokens), output=_lengths(section.output_tokens)
        ),
        system_prompts=_system_prompts(section.system_prompts),
        priority_weights=section.priority_weights,
        rng=streams.rng("trace"),
    )


def _system_prompts(section: SystemPromptsSection | None) -> traces.SystemPrompts | None:
    if section is None:
        return None
    return traces.SystemPrompts(section.share, tuple(section.num_tokens), section.zipf_exponent)


def _lengths(section: LengthsSection) -> traces.Lognormal:
    highest = section.highest or traces.MAX_NUM_TOKENS
    return traces.Lognormal(section.median, section.sigma, section.lowest, highest)


def _check_section(section: TraceSection) -> None:
    sources = {
        "path": section.path is not None,
        "sample": section.sample,
        "generator": section.generator is not None,
    }
    given = [name for name, is_given in sources.items() if is_given]
    if len(given) != 1:
        raise StudyError(
            "trace: give one of path (a trace file), sample: true (the shipped one) and "
            f"generator, not {' and '.join(given) or 'none'}"
        )
    if section.path is None and section.format != "auto":
        raise StudyError(f"trace.format: it is for a trace file; a {given[0]} has none")
    if section.rate_scale is not None and section.poisson_rate_per_s is not None:
        raise StudyError(
            "trace: rate_scale and poisson_rate_per_s both set the arrival times; give one of them"
        )
