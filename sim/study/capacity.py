"""The largest rate that a study's limits allow, and the fewest replicas that they need.

Each search is one process's work: its probes run one after another, and searches (one a
configuration, seed and step-time factor) run side by side.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from sim.errors import StudyError
from sim.study.bracket import Bracket, largest_rate, smallest_count
from sim.study.intervals import Interval, t_interval
from sim.study.probe import POISSON, Probe, at_value, judge, rate_key
from sim.study.slo import Limit, requests_needed

Kind = Literal["rate", "replicas"]
_LIVES = 10
"""A run must last this many mean E2Es, or it is all beginning and end."""


@dataclass(frozen=True, slots=True)
class Search:
    """One search, as it travels to a worker; `label` says which configuration and seed."""

    kind: Kind
    label: str
    values: Mapping[str, Any]
    limits: tuple[Limit, ...]
    seed: int
    step_time_factor: float = 1.0
    tolerance: float = 0.02
    most_replicas: int = 64
    start: float | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found, and every probe in the order in which it was made.

    `value`: requests a second, or replicas; None if nothing meets the limits. `next_bad`: the
    nearest probed value that misses; None if everything meets them. `at` is the probe at `value`.
    """

    search: Search
    value: float | None
    next_bad: float | None
    probes: tuple[Probe, ...]
    at: Probe | None
    gpus_a_replica: int
    hardware: str
    trace_sha256: str
    cost_label: str


def run_search(search: Search, on_probe: Callable[[Probe], object] | None = None) -> Found:
    """Search for the rate or the count.

    Raises:
        StudyError: the study is wrong, or its trace has too few requests for the limits.
    """
    key = rate_key(search.values) if search.kind == "rate" else "replicas"
    study = at_value(search.values, "seed", search.seed)
    _refuse_few_requests(len(study.trace), search.limits)

    def probe(value: float) -> Probe:
        whole = value if search.kind == "rate" else int(value)
        here = at_value(search.values, key, whole, search.seed)
        result = judge(value, here, search.limits, search.step_time_factor)
        if on_probe is not None:
            on_probe(result)
        return result

    if search.kind == "rate":
        first = search.start or (_written_rate(search.values) if key == POISSON else 1.0)
        bracket = largest_rate(probe, first, search.tolerance)
    else:
        bracket = smallest_count(probe, search.most_replicas)
    return _found(search, bracket, study)


def _found(search: Search, bracket: Bracket[Probe], study: Any) -> Found:
    def rate_of(value: float | None) -> float | None:
        if value is None or search.kind == "replicas":
            return value
        return bracket.probes[value].arrival_rate_per_s

    return Found(
        search=search,
        value=rate_of(bracket.best),
        next_bad=rate_of(bracket.first_bad),
        probes=tuple(bracket.probes.values()),
        at=None if bracket.best is None else bracket.probes[bracket.best],
        gpus_a_replica=study.engine.tensor_parallel_size,
        hardware=study.gpu.name,
        trace_sha256=study.trace.content_sha256,
        cost_label=study.cost_model.provenance.label,
    )


def _written_rate(values: Mapping[str, Any]) -> float:
    return float(values["trace"]["poisson_rate_per_s"])


def _refuse_few_requests(num_requests: int, limits: Sequence[Limit]) -> None:
    needed = requests_needed(limits)
    if num_requests < needed:
        raise StudyError(
            f"the trace is too short: {num_requests:,} requests say nothing about "
            f"{' and '.join(str(limit) for limit in limits)}; {needed:,} are needed"
        )


def too_short(found: Found) -> str | None:
    """Why the trace is too short for what was found, with the length needed; None if it is not.

    A run shorter than ten mean E2Es at the rate found is mostly filling and draining.
    """
    probe = found.at
    if probe is None or found.search.kind != "rate":
        return None
    needed = round(_LIVES * probe.num_in_system)
    if probe.num_requests >= needed and found.next_bad is not None:
        return None
    if found.next_bad is None:
        return (
            f"everything meets the limits, even all {probe.num_requests:,} requests at once: the "
            "trace is too short to find a limit, or the limits are too loose"
        )
    rate = probe.arrival_rate_per_s
    length_s = probe.num_requests / rate
    return (
        f"the trace is too short: at {rate:.3g} requests/s it lasts {length_s:.3g} s "
        f"with {probe.num_in_system:.3g} requests in the system; {needed:,} requests "
        f"({needed / rate:.3g} s) are needed"
    )


def nothing_meets(found: Found) -> str | None:
    """What to say if nothing meets the limits, with the best that was reached; None if one does."""
    if found.value is not None:
        return None
    limits = found.search.limits
    last = found.probes[-1]
    values = [
        f"{limit} but it is {'absent' if value is None else format(value, '.4g')}"
        for limit, value, met in zip(limits, last.measured, last.is_met, strict=True)
        if not met
    ]
    if found.search.kind == "rate":
        how = f"even at {last.arrival_rate_per_s:.3g} requests/s, where requests are all but alone"
    else:
        how = f"with up to {int(last.value)} replicas"
    why = "; ".join(values) or "the backlog grows"
    return f"nothing meets the limits {how}: {why}"


def seed_interval(founds: Sequence[Found], confidence: float = 0.95) -> Interval | None:
    """The mean of what the seeds found, with its interval; None if seeds changed nothing.

    Seeds that give the same trace are one observation, not many.
    """
    by_trace = {found.trace_sha256: found.value for found in founds if found.value is not None}
    if len(by_trace) < 2:
        return None
    return t_interval(np.array(list(by_trace.values()), dtype=np.float64), confidence)
