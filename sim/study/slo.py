"""Limits of a service: `ttft_p99_s=0.5`, `tpot_mean_s=0.05`, `goodput_share=0.95`."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sim.config.messages import nearest
from sim.errors import StudyError
from sim.metrics import finished_values, latency_columns, meets_slo
from sim.metrics.units import metric_words
from sim.run_result import Columns, Slo

_LATENCY = re.compile(r"^(ttft|tpot|e2e|queue_time)_(mean|max|p\d{1,2}(?:\.\d+)?)_s$")
_KNOWN = tuple(
    f"{name}_{stat}_s"
    for name in ("ttft", "tpot", "e2e", "queue_time")
    for stat in ("mean", "p50", "p90", "p95", "p99")
)
GOODPUT = "goodput_share"
GOOD_SHARE = 0.95
"""Share of requests that must meet the study's slo where nothing else is asked for."""


@dataclass(frozen=True, slots=True)
class Limit:
    """A metric and its limit: latencies at most, the share of good requests at least."""

    metric: str
    limit: float

    @property
    def percent(self) -> float | None:
        """The percentile, None for a mean, a maximum or a share."""
        found = _LATENCY.match(self.metric)
        stat = found.group(2) if found else ""
        return float(stat[1:]) if stat.startswith("p") else None

    def measure(self, requests: Columns, slo: Slo) -> float | None:
        """The metric of a run; None if no request has it."""
        if self.metric == GOODPUT:
            return float(meets_slo(requests, slo).mean()) if len(requests["state"]) else None
        name, stat = _parts(self.metric)
        values = finished_values(requests, latency_columns(requests)[f"{name}_s"])
        if not len(values):
            return None
        if stat == "mean":
            return float(values.mean())
        percent = 100.0 if stat == "max" else float(stat[1:])
        return float(np.percentile(values, percent))

    def is_met(self, value: float | None) -> bool:
        """Whether a value keeps the limit; an absent one does not."""
        if value is None:
            return False
        return value >= self.limit if self.metric == GOODPUT else value <= self.limit

    def words(self) -> str:
        """The limit in words: "TTFT p99 at most 0.5 s"."""
        side = "at least" if self.metric == GOODPUT else "at most"
        return f"{metric_words(self.metric)} {side} {self.limit:g}{self._unit}"

    def measured_words(self, value: float | None) -> str:
        """A value of the metric in words: "TTFT p99 0.43 s"."""
        shown = "absent" if value is None else f"{value:.4g}{self._unit}"
        return f"{metric_words(self.metric)} {shown}"

    @property
    def _unit(self) -> str:
        return "" if self.metric == GOODPUT else " s"

    def __str__(self) -> str:
        return f"{self.metric} {'>=' if self.metric == GOODPUT else '<='} {self.limit:g}"


def parse_limit(text: str) -> Limit:
    """Read `metric=limit` (or `<=`, `>=`).

    Raises:
        StudyError: an unknown metric, or a limit that is no positive number.
    """
    metric, _, number = re.sub(r"[<>]=", "=", text).partition("=")
    metric = metric.strip()
    if metric != GOODPUT and not _LATENCY.match(metric):
        raise StudyError(f"--slo {text!r}: {metric!r} is no metric; {nearest(metric, _names())}")
    try:
        limit = float(number)
    except ValueError:
        limit = math.nan
    if not (math.isfinite(limit) and limit > 0):
        raise StudyError(f"--slo {text!r}: {number.strip()!r} is not a positive number")
    if metric == GOODPUT and limit > 1:
        raise StudyError(f"--slo {text!r}: a share is at most 1")
    return Limit(metric, limit)


def parse_limits(texts: Sequence[str], slo: Slo) -> tuple[Limit, ...]:
    """The limits of the command line; without any, that 95 % of requests meet the study's slo.

    Raises:
        StudyError: a limit is wrong, there is none, or a goodput share without the study's slo.
    """
    limits = tuple(parse_limit(text) for text in texts)
    if not limits and slo != Slo():
        return (Limit(GOODPUT, GOOD_SHARE),)
    if not limits:
        raise StudyError(
            "no limit to meet: give --slo, for instance --slo ttft_p99_s=0.5, or the study's slo"
        )
    if slo == Slo() and any(limit.metric == GOODPUT for limit in limits):
        raise StudyError(f"--slo {GOODPUT}: the study has no slo section that says what is good")
    return limits


def requests_needed(limits: Sequence[Limit]) -> int:
    """Requests below which the limits say nothing: ten must lie beyond each percentile."""
    percents = [limit.percent for limit in limits]
    return max((round(10 / (1 - p / 100)) for p in percents if p is not None), default=100)


def _parts(metric: str) -> tuple[str, str]:
    found = _LATENCY.match(metric)
    if found is None:
        raise StudyError(f"{metric!r} is no metric; {nearest(metric, _names())}")
    return found.group(1), found.group(2)


def _names() -> tuple[str, ...]:
    return (*_KNOWN, GOODPUT)
