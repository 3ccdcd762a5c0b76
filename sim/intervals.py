"""The uncertainty of a profile carried to the answer: the study again with each of an ensemble."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from calibration import ProfileCost, profile_ensemble, profile_uncertainty
from sim.config import ResolvedStudy
from sim.errors import StudyError
from sim.metrics import summarise
from sim.rng import Streams
from sim.simulation import simulate

NUM_MEMBERS = 20
COVERAGE = 0.9
"""An interval leaves out a twentieth of the ensemble at either end."""

_METRICS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("TTFT mean (s)", ("latency", "ttft_s", "mean")),
    ("TTFT p50 (s)", ("latency", "ttft_s", "p50")),
    ("TTFT p99 (s)", ("latency", "ttft_s", "p99")),
    ("TPOT mean (s)", ("latency", "tpot_s", "mean")),
    ("TPOT p99 (s)", ("latency", "tpot_s", "p99")),
    ("ITL p99 (s)", ("latency", "itl_s", "p99")),
    ("E2E mean (s)", ("latency", "e2e_s", "mean")),
    ("E2E p99 (s)", ("latency", "e2e_s", "p99")),
    ("Output tokens a second", ("throughput", "output_tokens_per_s")),
    ("Requests a second", ("throughput", "requests_per_s")),
)


@dataclass(frozen=True, slots=True)
class Interval:
    """A metric of the run, and where it lies for all but a tenth of the ensemble."""

    metric: str
    value: float
    low: float
    high: float


def profile_with_errors(study: ResolvedStudy) -> ProfileCost:
    """Return the study's measured profile.

    Raises:
        StudyError: the cost model is no measured profile.
        CalibrationError: the profile says nothing about its errors.
    """
    cost = study.cost_model
    if not isinstance(cost, ProfileCost):
        raise StudyError(
            f"intervals come from a measured profile; this study's cost model is"
            f" {cost.provenance.kind}, whose error is unknown"
        )
    profile_uncertainty(cost.profile)
    return cost


def run_intervals(
    study: ResolvedStudy,
    summary: dict[str, Any],
    *,
    num_members: int = NUM_MEMBERS,
    on_member: Callable[[int], None] | None = None,
) -> list[Interval]:
    """Run the study with an ensemble of its profile; `summary` is the run's own.

    The ensemble is drawn from the study's seed: the same study gives the same intervals.

    Raises:
        StudyError: the cost model is no measured profile.
        CalibrationError: the profile says nothing about its errors.
    """
    cost = profile_with_errors(study)
    rng = Streams(study.seed).rng("intervals")
    summaries = []
    for number, member in enumerate(profile_ensemble(cost.profile, num_members, rng)):
        summaries.append(summarise(simulate(replace(study, cost_model=member))))
        if on_member is not None:
            on_member(number + 1)
    found = (_interval(name, path, summary, summaries) for name, path in _METRICS)
    return [interval for interval in found if interval is not None]


def _interval(
    metric: str, path: tuple[str, ...], summary: dict[str, Any], members: Sequence[dict[str, Any]]
) -> Interval | None:
    value = _value(summary, path)
    values = [found for found in (_value(member, path) for member in members) if found is not None]
    if value is None or not values:
        return None
    tail = 100 * (1 - COVERAGE) / 2
    # Weibull's plotting positions: of 20 members the usual ones would cover 82 % where 90 is said.
    low, high = np.percentile(values, [tail, 100 - tail], method="weibull")
    return Interval(metric, value, float(min(low, value)), float(max(high, value)))


def _value(summary: dict[str, Any], path: tuple[str, ...]) -> float | None:
    value: Any = summary
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return None if value is None else float(value)
