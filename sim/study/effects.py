"""What changed from A to B: one effect a metric, with an interval and a verdict in words.

With several seeds the observation is a seed's difference, and the interval is Student's (paired
t); a bootstrap over the seeds stands beside it. With one seed it is of blocks of the requests in
order of arrival, since neighbours in a queue are not independent: block means for a mean, a block
bootstrap for a percentile.
Positive metrics are compared by the logarithm of their ratio, so that halving and doubling are
alike; others by their difference.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from sim.study.intervals import (
    Interval,
    bootstrap_interval,
    t_interval,
    values_needed,
)
from sim.study.one_run import RESAMPLES, Change, one_run_interval
from sim.study.paired import Arm, Pair

FloatArray = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Verdict = Literal["lower", "higher", "no difference shown", "no interval"]


@dataclass(frozen=True, slots=True)
class Metric:
    """A figure to compare: a statistic of a latency column, a scalar, or the share of good."""

    name: str
    label: str
    column: str = ""
    percent: float | None = None  # None: the mean
    lower_is_better: bool = True

    def of(self, arm: Arm, rows: Mask | None = None) -> float | None:
        """The figure of one run, over some rows or all; None if there is none."""
        if not self.column:
            return arm.scalars.get(self.name)
        values = self.values(arm, rows)
        values = values[~np.isnan(values)]
        if not len(values):
            return None
        return float(values.mean() if self.percent is None else np.percentile(values, self.percent))

    def values(self, arm: Arm, rows: Mask | None = None) -> FloatArray:
        """The column that the figure is a statistic of; empty for a scalar."""
        if not self.column:
            return np.empty(0)
        if self.column == "good":
            column = np.full(0, np.nan) if arm.good is None else arm.good.astype(np.float64)
        else:
            column = arm.latencies[self.column]
        return column if rows is None or not len(column) else column[rows]


METRICS: tuple[Metric, ...] = (
    Metric("ttft_mean_s", "TTFT mean", "ttft_s"),
    Metric("ttft_p50_s", "TTFT p50", "ttft_s", 50),
    Metric("ttft_p99_s", "TTFT p99", "ttft_s", 99),
    Metric("tpot_mean_s", "TPOT mean", "tpot_s"),
    Metric("tpot_p99_s", "TPOT p99", "tpot_s", 99),
    Metric("e2e_mean_s", "E2E mean", "e2e_s"),
    Metric("e2e_p99_s", "E2E p99", "e2e_s", 99),
    Metric("queue_time_mean_s", "Queue time mean", "queue_time_s"),
    Metric("output_tokens_per_s", "Output tokens/s", lower_is_better=False),
    Metric("goodput_share", "Share of good requests", "good", lower_is_better=False),
    Metric("preemptions", "Preemptions"),
)
GROUP_METRICS = tuple(m for m in METRICS if m.name in ("ttft_mean_s", "ttft_p99_s", "e2e_mean_s"))


@dataclass(frozen=True, slots=True)
class Effect:
    """The change of one metric.

    `a` and `b` are means over the seeds. `interval` is of the change: as a share of A (-0.31 is
    31 % lower) if `is_relative`, else in the metric's unit. `bootstrap` is the interval over
    seeds by bootstrap, None with one seed. `seeds_needed` for the precision asked for; None if it
    can't be told.
    """

    metric: Metric
    group: str
    a: float
    b: float
    is_relative: bool
    interval: Interval
    bootstrap: Interval | None
    method: str
    is_identical: bool
    seeds_needed: int | None

    @property
    def verdict(self) -> Verdict:
        """Which way the metric went, if the interval leaves only one."""
        if self.is_identical:
            return "no difference shown"
        if not math.isfinite(self.interval.half_width):
            return "no interval"
        if self.interval.holds(0.0):
            return "no difference shown"
        return "lower" if self.interval.estimate < 0 else "higher"

    @property
    def is_better(self) -> bool | None:
        """Whether B is better; None without a difference."""
        if self.verdict not in ("lower", "higher"):
            return None
        return (self.verdict == "lower") == self.metric.lower_is_better

    def sentence(self) -> str:
        """The verdict in words: "TTFT p99 lower by 31 % [26, 35]"."""
        name = f"{self.metric.label}{f' ({self.group})' if self.group else ''}"
        if self.is_identical:
            return f"{name}: no difference shown (equal in every run)"
        if self.verdict == "no interval":
            return f"{name}: no interval (one run says too little), {self._signed()}"
        low, high = self.interval.low, self.interval.high
        if self.verdict == "no difference shown":
            return f"{name}: no difference shown [{self._number(low)}, {self._number(high)}]"
        size = self._range(abs(self.interval.estimate))
        ends = sorted((abs(low), abs(high)))
        inside = ", ".join(self._number(end, signed=False) for end in ends)
        return f"{name} {self.verdict} by {size} [{inside}]"

    def _range(self, value: float) -> str:
        return f"{self._number(value, signed=False)}{' %' if self.is_relative else ''}"

    def _signed(self) -> str:
        change = self._number(self.interval.estimate)
        return f"changed by {change}{' %' if self.is_relative else ''}"

    def _number(self, value: float, signed: bool = True) -> str:
        scale = 100 if self.is_relative else 1
        return format(scale * value, "+.3g" if signed else ".3g")


def compare_metric(
    metric: Metric,
    pairs: Sequence[Pair],
    rng: np.random.Generator,
    *,
    rows: Sequence[Mask] | None = None,
    group: str = "",
    confidence: float = 0.95,
    precision: float = 0.05,
) -> Effect | None:
    """The effect on one metric, over all requests or the `rows` of each pair; None if absent."""
    masks: Sequence[Mask | None] = [None] * len(pairs) if rows is None else rows
    figures = [(metric.of(p.a, m), metric.of(p.b, m)) for p, m in zip(pairs, masks, strict=True)]
    known = [(a, b) for a, b in figures if a is not None and b is not None]
    if not known or len(known) < len(figures):
        return None
    a, b = (np.array(column, dtype=np.float64) for column in zip(*known, strict=True))
    is_relative = bool((a > 0).all() and (b > 0).all()) and metric.column != "good"
    differences = np.log(b / a) if is_relative else b - a
    is_identical = all(_is_identical(metric, p, m) for p, m in zip(pairs, masks, strict=True))
    if len(pairs) > 1:
        interval = t_interval(differences, confidence)
        bootstrap = _seed_bootstrap(differences, rng, confidence)
        method = f"paired t over {len(pairs)} seeds"
        wanted = math.log1p(precision) if is_relative else precision * abs(float(a.mean()))
        needed = values_needed(differences, wanted, confidence) if wanted else None
    else:
        change = Change(float(differences[0]), is_relative, confidence)
        interval = one_run_interval(
            metric.values(pairs[0].a, masks[0]),
            metric.values(pairs[0].b, masks[0]),
            metric.percent,
            change,
            rng,
        )
        bootstrap, needed, method = None, None, "blocks of the requests of one run"
    return Effect(
        metric,
        group,
        float(a.mean()),
        float(b.mean()),
        is_relative,
        _shown(interval, is_relative),
        None if bootstrap is None else _shown(bootstrap, is_relative),
        method,
        is_identical,
        needed,
    )


def _seed_bootstrap(
    differences: FloatArray, rng: np.random.Generator, confidence: float
) -> Interval:
    index = rng.integers(0, len(differences), (RESAMPLES, len(differences)))
    resampled = differences[index].mean(axis=1)
    return bootstrap_interval(float(differences.mean()), resampled, confidence)


def _is_identical(metric: Metric, pair: Pair, rows: Mask | None) -> bool:
    if not metric.column:
        return metric.of(pair.a) == metric.of(pair.b)
    a, b = metric.values(pair.a, rows), metric.values(pair.b, rows)
    return bool(np.array_equal(a, b, equal_nan=True))


def _shown(interval: Interval, is_relative: bool) -> Interval:
    """A change of the logarithm as a share of A."""
    if not is_relative:
        return interval
    low, high = math.expm1(interval.low), _expm1(interval.high)
    return Interval(_expm1(interval.estimate), low, high, interval.confidence)


def _expm1(value: float) -> float:
    return math.inf if value > 700 else math.expm1(value)
