"""The largest rate that a study's limits allow, and the fewest replicas that they need.

Each search is one process's work: its probes run one after another, and searches (one a
configuration, seed, step-time factor or profile of an ensemble) run side by side.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from calibration import CostModel
from sim.config import ResolvedStudy
from sim.errors import StudyError
from sim.study.bracket import Bracket, largest_rate, smallest_count, smallest_count_near
from sim.study.probe import POISSON, Probe, at_value, judge, rate_key
from sim.study.profile_members import Member, lacks_host_time, member_cost
from sim.study.scaled_cost import ScaledCost
from sim.study.slo import Limit, requests_needed
from sim.study.sweep_section import TrimSection
from sim.wording import number_of

Kind = Literal["rate", "replicas"]
_LIVES = 10
"""A run must last this many mean E2Es, or it is all beginning and end."""


@dataclass(frozen=True, slots=True)
class Search:
    """One search, as it travels to a worker; `label` says which configuration and seed.

    `near` is a value close to the answer (in the unit of `Probe.value`), to begin at and go on
    from in small steps. `member` is a profile of an ensemble to take for the study's own. `trim`
    leaves out the ends of each run.
    """

    kind: Kind
    label: str
    values: Mapping[str, Any]
    limits: tuple[Limit, ...]
    seed: int
    step_time_factor: float = 1.0
    tolerance: float = 0.02
    most_replicas: int = 64
    start: float | None = None
    near: float | None = None
    member: Member | None = None
    trim: TrimSection | None = None

    @property
    def is_plain(self) -> bool:
        """Whether it is of the study's own step times."""
        return self.step_time_factor == 1 and self.member is None


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
    is_calibrated: bool
    lacks_host_time: bool = False


def run_search(search: Search, on_probe: Callable[[Probe], object] | None = None) -> Found:
    """Search for the rate or the count.

    Raises:
        StudyError: the study is wrong, or its trace has too few requests for the limits.
    """
    key = rate_key(search.values) if search.kind == "rate" else "replicas"
    study = at_value(search.values, "seed", search.seed)
    if study.until_s is not None:
        raise StudyError("until_s: a search runs every request to its end; leave it out")
    _refuse_few_requests(len(study.trace), search.limits)
    cost = _cost_of(search, study)

    def probe(value: float) -> Probe:
        whole = value if search.kind == "rate" else int(value)
        here = at_value(search.values, key, whole, search.seed)
        result = judge(value, replace(here, cost_model=cost), search.limits, search.trim)
        if on_probe is not None:
            on_probe(result)
        return result

    return _found(search, _bracket(search, key, probe), study)


def _cost_of(search: Search, study: ResolvedStudy) -> CostModel:
    cost = study.cost_model
    if search.member is not None:
        cost = member_cost(study, search.member)
    factor = search.step_time_factor
    return cost if factor == 1 else ScaledCost(cost, factor)


def _bracket(search: Search, key: str, probe: Callable[[float], Probe]) -> Bracket[Probe]:
    near = search.near
    if search.kind == "replicas":
        if near is not None:
            return smallest_count_near(probe, int(near), search.most_replicas)
        return smallest_count(probe, search.most_replicas)
    if near is not None:
        return largest_rate(probe, near, search.tolerance, 1 + 2 * search.tolerance)
    first = search.start or (_written_rate(search.values) if key == POISSON else 1.0)
    return largest_rate(probe, first, search.tolerance)


def _found(search: Search, bracket: Bracket[Probe], study: ResolvedStudy) -> Found:
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
        is_calibrated=study.cost_model.provenance.calibrated,
        lacks_host_time=lacks_host_time(study),
    )


def _written_rate(values: Mapping[str, Any]) -> float:
    return float(values["trace"]["poisson_rate_per_s"])


def _refuse_few_requests(num_requests: int, limits: Sequence[Limit]) -> None:
    needed = requests_needed(limits)
    if num_requests < needed:
        words = number_of(num_requests, "request says", "requests say")
        raise StudyError(
            f"the trace is too short: {words} nothing about "
            f"{' and '.join(str(limit) for limit in limits)}; {needed:,} are needed"
        )


def too_short(found: Found) -> str | None:
    """Why the trace is too short for what was found, with the length needed; None if it is not.

    A run shorter than ten mean E2Es at the rate found is mostly filling and draining.
    """
    probe = found.at
    if probe is None or found.search.kind != "rate":
        return None
    needed = max(round(_LIVES * probe.num_in_system), requests_needed(found.search.limits))
    if probe.num_requests >= needed and found.next_bad is not None:
        return None
    if found.next_bad is None:
        requests = number_of(probe.num_requests, "request")
        return (
            f"everything meets the limits, even {requests} at once: the "
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
        how = f"with up to {number_of(int(last.value), 'replica')}"
    why = "; ".join(values) or "the backlog grows"
    return f"nothing meets the limits {how}: {why}"
