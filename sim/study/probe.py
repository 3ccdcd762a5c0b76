"""One run of a study judged by the limits of its service."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sim.config import Override, ResolvedStudy, resolve_study
from sim.errors import StudyError
from sim.metrics import e2e_s, finished_values, step_length_s
from sim.metrics.units import metric_words
from sim.run_result import RunResult
from sim.simulation import simulate
from sim.study.limits import MAIN_LIMIT_WORDS, limit_shares, main_limit
from sim.study.slo import Limit
from sim.study.steady import kept_window, steadiness, trimmed
from sim.study.sweep_section import TrimSection

_ALONE = 0.05  # requests in the system, on average
POISSON = "trace.poisson_rate_per_s"
SCALE = "trace.rate_scale"


@dataclass(frozen=True, slots=True)
class Probe:
    """What one run said.

    `value` is the rate (or count) probed; `num_requests` those judged; `measured` the metric of
    each limit, in their order; `is_saturated`: the backlog grows without end. `num_in_system` is
    the arrival rate times the mean E2E (Little). `main_limit`: what requests waited for.
    `warnings`: those of the run.
    """

    value: float
    arrival_rate_per_s: float
    num_requests: int
    measured: tuple[float | None, ...]
    is_met: tuple[bool, ...]
    is_saturated: bool
    num_in_system: float
    is_at_once: bool
    main_limit: str
    num_unfinished: int
    num_rejected: int = 0
    warnings: tuple[str, ...] = ()

    @property
    def is_ok(self) -> bool:
        """All limits hold, the backlog does not grow, and nothing is left over."""
        return all(self.is_met) and not self.is_saturated and not self.num_unfinished

    @property
    def is_alone(self) -> bool:
        """Requests hardly ever meet."""
        return self.num_in_system < _ALONE

    def line(self, limits: tuple[Limit, ...]) -> str:
        """The probe in one line."""
        pairs = zip(limits, self.measured, strict=True)
        values = ", ".join(limit.measured_words(value) for limit, value in pairs)
        why = MAIN_LIMIT_WORDS[self.main_limit]
        return f"{self.arrival_rate_per_s:.4g} requests/s, {values}: {self._outcome(limits)}; {why}"

    def _outcome(self, limits: tuple[Limit, ...]) -> str:
        if self.is_ok:
            return "meets the limits"
        if self.is_saturated:
            return "overloaded, more arrives than is served"
        pairs = zip(limits, self.is_met, strict=True)
        missed = [metric_words(limit.metric) for limit, met in pairs if not met]
        return f"misses {' and '.join(missed)}" if missed else "leaves requests unfinished"


def judge(
    value: float,
    study: ResolvedStudy,
    limits: tuple[Limit, ...],
    trim: TrimSection | None = None,
) -> Probe:
    """Run a study and judge it by the requests that `trim` keeps.

    Raises:
        StudyError: it keeps none.
    """
    return judged(value, study, simulate(study), limits, trim)


def judged(
    value: float,
    study: ResolvedStudy,
    result: RunResult,
    limits: tuple[Limit, ...],
    trim: TrimSection | None = None,
) -> Probe:
    """Judge a run that is there."""
    requests = result.requests
    window = kept_window(requests, trim)
    kept = requests if trim is None else trimmed(requests, window)
    measured = tuple(limit.measure(kept, study.slo) for limit in limits)
    met = tuple(limit.is_met(m) for limit, m in zip(limits, measured, strict=True))
    span_s = float(requests["arrival_s"].max() - requests["arrival_s"].min())
    rate = (len(requests["state"]) - 1) / span_s if span_s > 0 else float("inf")
    whole_s = finished_values(kept, e2e_s(kept))
    mean_s = float(whole_s.mean()) if len(whole_s) else 0.0
    queue = steadiness(requests, window).backlog
    shares = limit_shares(result.steps, result.info.replicas)
    return Probe(
        value=value,
        arrival_rate_per_s=rate,
        num_requests=len(kept["state"]),
        measured=measured,
        is_met=met,
        is_saturated=bool(queue and queue.is_growing),
        num_in_system=rate * mean_s if mean_s else 0.0,
        is_at_once=not len(whole_s) or span_s < float(np.min(whole_s)),
        main_limit=main_limit(shares, _busy_share(result)),
        num_unfinished=int((requests["state"] == "unfinished").sum()),
        num_rejected=int((kept["state"] == "rejected").sum()),
        warnings=result.info.warnings,
    )


def _busy_share(result: RunResult) -> float:
    """Share of the time from the first step to the last in which replicas ran a step."""
    steps = result.steps
    if not len(steps["step"]):
        return 0.0
    span_s = float(steps["end_s"].max() - steps["start_s"].min()) * len(result.info.replicas)
    return float(step_length_s(steps).sum()) / span_s


def rate_key(values: Mapping[str, Any]) -> str:
    """The key that sets a study's arrival rate.

    Raises:
        StudyError: a closed load, whose rate follows from its clients.
    """
    load = values.get("load")
    if isinstance(load, Mapping) and load.get("mode") == "closed":
        raise StudyError("load.mode: a closed load has no arrival rate; capacity needs mode: open")
    trace = values.get("trace")
    has_poisson = isinstance(trace, Mapping) and trace.get("poisson_rate_per_s") is not None
    return POISSON if has_poisson else SCALE


def at_value(
    values: Mapping[str, Any], key: str, value: float | int, seed: int | None = None
) -> ResolvedStudy:
    """The study with one key (and the seed) set."""
    overrides = [Override(key, value, f"{key} = {value:g}")]
    if seed is not None:
        overrides.append(Override("seed", seed, f"seed = {seed}"))
    return resolve_study(values, "the study", overrides)
