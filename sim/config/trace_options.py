"""The trace section to a `Trace`: load or generate, then transform."""

from collections.abc import Iterator
from contextlib import contextmanager

import traces
from sim.config.generator_options import conversations, generated, servegen
from sim.config.schema import TraceSection
from sim.errors import StudyError
from sim.rng import Streams
from traces import Trace, TraceError

_FILE_KEYS = ("format", "time_unit", "block_size", "on_bad_row")


def resolve_trace(section: TraceSection, streams: Streams, name: str = "trace") -> Trace:
    """Load or make the study's requests and apply its transforms; the first arrival is at 0.

    Every use of chance has a stream of its own, named after `name` and what it is for.

    Raises:
        StudyError: no source or two, or transforms that exclude each other.
        TraceError: the trace itself is missing or wrong.
    """
    _check_section(section)
    trace = _selected(section, _source(section, streams, name), streams, name)
    if section.merge:
        trace = _merged(section, trace, streams, name)
    elif section.tenant is not None:
        trace = traces.with_tenants(trace, {section.tenant: 1.0}, streams.rng(f"{name}.tenant"))
    trace = _relabelled(section, trace, streams, name)
    return traces.from_zero(_moved(section, trace, streams, name))


def _source(section: TraceSection, streams: Streams, name: str) -> Trace:
    if section.path is not None:
        return _load(section, section.path)
    if section.generator is not None:
        with _under(f"{name}.generator"):
            return generated(section.generator, streams.rng(name))
    if section.conversations is not None:
        with _under(f"{name}.conversations"):
            return conversations(section.conversations, streams.rng(name))
    if section.servegen is not None:
        with _under(f"{name}.servegen"):
            return servegen(section.servegen, streams.rng(name))
    return traces.sample()


def _load(section: TraceSection, path: str) -> Trace:
    window = section.window_s
    return traces.load(
        path,
        section.format,
        time_unit=section.time_unit,
        block_size=section.block_size,
        on_bad_row=section.on_bad_row,
        # Applied while reading, so that a week's file need not fit into memory for an hour of it.
        window_s=None if window is None else (window[0], window[1]),
    )


def _selected(section: TraceSection, trace: Trace, streams: Streams, name: str) -> Trace:
    if section.window_s is not None and section.path is None:
        with _under(f"{name}.window_s"):
            trace = traces.window(trace, *section.window_s)
    if section.limit is not None:
        trace = traces.limit(trace, section.limit)
    if section.sample_sessions is not None:
        rng = streams.rng(f"{name}.sample_sessions")
        with _under(f"{name}.sample_sessions"):
            trace = traces.sample_sessions(trace, section.sample_sessions, rng)
    if section.thin is not None:
        with _under(f"{name}.thin"):
            trace = traces.thin(trace, section.thin, streams.rng(f"{name}.thin"))
    return trace


def _merged(section: TraceSection, trace: Trace, streams: Streams, name: str) -> Trace:
    others = section.merge or []
    parts = [
        resolve_trace(other, streams, f"{name}.merge.{index}") for index, other in enumerate(others)
    ]
    tenants = [section.tenant, *(other.tenant for other in others)]
    return traces.merge([traces.from_zero(trace), *parts], tenants)


def _relabelled(section: TraceSection, trace: Trace, streams: Streams, name: str) -> Trace:
    if section.max_prompt_tokens is not None or section.max_output_tokens is not None:
        trace = traces.cap_lengths(trace, section.max_prompt_tokens, section.max_output_tokens)
    if section.priority_map is not None:
        trace = traces.map_priorities(trace, section.priority_map)
    if section.priority_weights is not None:
        rng = streams.rng(f"{name}.priorities")
        with _under(f"{name}.priority_weights"):
            trace = traces.with_priorities(trace, section.priority_weights, rng)
    if section.tenant_weights is not None:
        rng = streams.rng(f"{name}.tenants")
        with _under(f"{name}.tenant_weights"):
            trace = traces.with_tenants(trace, section.tenant_weights, rng)
    return trace


def _moved(section: TraceSection, trace: Trace, streams: Streams, name: str) -> Trace:
    if section.jitter_s is not None:
        with _under(f"{name}.jitter_s"):
            trace = traces.jitter(trace, section.jitter_s, streams.rng(f"{name}.jitter"))
    if section.rate_scale is not None:
        with _under(f"{name}.rate_scale"):
            trace = traces.scale_rate(trace, section.rate_scale)
    if section.poisson_rate_per_s is not None:
        rng = streams.rng("arrivals" if name == "trace" else f"{name}.arrivals")
        with _under(f"{name}.poisson_rate_per_s"):
            trace = traces.with_poisson_arrivals(trace, section.poisson_rate_per_s, rng)
    return trace


def _check_section(section: TraceSection) -> None:
    sources = {
        "path": section.path is not None,
        "sample": section.sample,
        "generator": section.generator is not None,
        "conversations": section.conversations is not None,
        "servegen": section.servegen is not None,
    }
    given = [name for name, is_given in sources.items() if is_given]
    if len(given) != 1:
        raise StudyError(
            "trace: give one of path (a trace file), sample: true (the shipped one), generator, "
            f"conversations and servegen, not {' and '.join(given) or 'none'}"
        )
    if section.path is None:
        _check_no_file_keys(section, given[0])
    if section.rate_scale is not None and section.poisson_rate_per_s is not None:
        raise StudyError(
            "trace: rate_scale and poisson_rate_per_s both set the arrival times; give one of them"
        )


def _check_no_file_keys(section: TraceSection, source: str) -> None:
    usual = TraceSection()
    for key in _FILE_KEYS:
        if getattr(section, key) != getattr(usual, key):
            raise StudyError(f"trace.{key}: it is for a trace file; a {source} has none")


@contextmanager
def _under(key: str) -> Iterator[None]:
    """A refusal within says which key of the study it is about."""
    try:
        yield
    except TraceError as error:
        raise TraceError(f"{key}: {error}") from error
