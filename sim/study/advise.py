"""The few settings worth choosing among those of a sweep, why, and what limits each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from calibration import load_gpu
from sim.metrics.units import slo_words
from sim.study.pareto import pareto_front
from sim.study.plan import Plan
from sim.study.row import Row
from sim.study.slo import GOOD_SHARE

_NOTABLY = 0.95
_GOOD = "goodput.good_share_of_arrived"
_LIMITS = {
    "budget": "the token budget: requests wait while batches are full; raise "
    "engine.max_num_batched_tokens",
    "kv": "the KV pool: requests wait for blocks; more memory, a shorter max_model_len or more "
    "GPUs a replica",
    "seqs": "the number of sequences: requests wait while as many run as may; raise "
    "engine.max_num_seqs",
    "compute": "the GPU itself: steps follow each other without a pause, and no setting holds "
    "requests back",
    "none": "the load: replicas have time to spare",
}


@dataclass(frozen=True, slots=True)
class Advice:
    """A setting on the front. `cost` in the unit of the search, `latency_s` its latency.

    `why` and `limit` are sentences; `values` is the whole study to run.
    """

    label: str
    cost: float
    latency_s: float
    why: str
    limit: str
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Front:
    """All settings of a sweep (means over seeds) with the rows on the front.

    `left_out`: settings that are not advised whatever they cost, and why.
    """

    labels: tuple[str, ...]
    cost: tuple[float, ...]
    latency_s: tuple[float, ...]
    on_front: tuple[int, ...]
    left_out: tuple[tuple[str, str], ...] = ()


def advise(
    plan: Plan,
    rows: Sequence[Row],
    latency: str = "latency.ttft_s.p99",
    prices: Mapping[str, float] | None = None,
) -> tuple[list[Advice], Front]:
    """Settings that no other one beats in both cost and latency, by rising cost; no near ties.

    Cost is dollars (with prices of the GPUs; else GPU hours) for a million output tokens. Settings
    whose backlog grows, whose run is too short to tell their throughput, that are not run to the
    end, that refuse requests or in which fewer than `GOOD_SHARE` of the requests meet the study's
    slo, where it has one, are not advised. `prices`, if there are any, must be of every GPU of the
    plan (`check_prices`).
    """
    groups = _by_setting(plan, rows)
    priced = [_cost(plan, group, prices or {}) for group in groups.values()]
    why_not = {label: _why_not(group) for label, group in groups.items()}
    cost = [c if not why_not[label] else np.nan for c, label in zip(priced, groups, strict=True)]
    latencies = [_mean(group, latency) for group in groups.values()]
    front = notable(pareto_front(cost, latencies).tolist(), latencies)
    labels = list(groups)
    advices = [
        Advice(
            labels[row],
            cost[row],
            latencies[row],
            _why(place, front, cost, latencies),
            _LIMITS[str(groups[labels[row]][0]["limits.main"])],
            _study(plan, groups[labels[row]][0]),
        )
        for place, row in enumerate(front)
    ]
    why_not |= {label: why for label, why in _failed(plan, rows).items() if label not in groups}
    left_out = tuple((label, why) for label, why in why_not.items() if why)
    return advices, Front(tuple(labels), tuple(cost), tuple(latencies), tuple(front), left_out)


def notable(front: Sequence[int], latency_s: Sequence[float]) -> list[int]:
    """The front without rows that are hardly faster (by less than 5 %) than a cheaper one kept."""
    kept: list[int] = []
    for row in front:
        if not kept or latency_s[row] < _NOTABLY * latency_s[kept[-1]]:
            kept.append(row)
    return kept


def _by_setting(plan: Plan, rows: Sequence[Row]) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        if not row.get("error"):
            groups.setdefault(_label(plan, row), []).append(row)
    return groups


def _failed(plan: Plan, rows: Sequence[Row]) -> dict[str, str]:
    """The settings whose first run failed, and its error."""
    errors: dict[str, str] = {}
    for row in rows:
        errors.setdefault(_label(plan, row), str(row.get("error") or ""))
    return {label: f"it failed: {error}" for label, error in errors.items() if error}


def _label(plan: Plan, row: Row) -> str:
    return ", ".join(f"{key} {row[key]}" for key in plan.keys if key in row)


def _why_not(group: Sequence[Row]) -> str:
    """Why a setting is not advised; empty if it may be."""
    reasons = {
        "more arrives than it serves": [row["load.is_saturated"] for row in group],
        "it rejects requests": [row["requests.rejected_requests"] for row in group],
        "requests are unfinished": [row["requests.unfinished_requests"] for row in group],
    }
    flaws = [reason for reason, values in reasons.items() if any(values)]
    too_short = next((str(text) for row in group if (text := row.get("per_gpu.too_short"))), "")
    flaws += [f"the run is too short: {too_short}"] if too_short else []
    return "; ".join([*flaws, *_missed_slo(group)])


def _missed_slo(group: Sequence[Row]) -> list[str]:
    """That too few requests meet the slo (mean over seeds); nothing without an slo."""
    good_share = _mean(group, _GOOD)
    if np.isnan(good_share) or good_share >= GOOD_SHARE:
        return []
    limits = {key.removeprefix("goodput."): value for key, value in group[0].items()}
    return [
        f"{100 * good_share:.4g} % of the requests meet the slo ({slo_words(limits)}); "
        f"{100 * GOOD_SHARE:.0f} % must"
    ]


def _cost(plan: Plan, group: Sequence[Row], prices: Mapping[str, float]) -> float:
    """GPU hours, or dollars, for a million output tokens."""
    rate = _mean(group, "per_gpu.output_tokens_per_s")
    if not rate > 0:
        return float("nan")
    hours = 1e6 / rate / 3600
    return hours * prices[load_gpu(_hardware(plan, group[0])).name] if prices else hours


def _hardware(plan: Plan, row: Row) -> str:
    return str(row.get("hardware", plan.base.get("hardware", "")))


def _mean(group: Sequence[Row], path: str) -> float:
    values = [row[path] for row in group if row.get(path) is not None]
    return float(np.mean(values)) if values else float("nan")


def _why(place: int, front: Sequence[int], cost: Sequence[float], latency: Sequence[float]) -> str:
    if len(front) == 1:
        return "the cheapest and the fastest of all"
    here = front[place]
    if place == 0:
        return "the cheapest of all"
    cheaper = front[place - 1]
    faster, dearer = latency[cheaper] / latency[here], cost[here] / cost[cheaper]
    trade = f"{faster:.3g} times as fast as the next cheaper one for {dearer:.3g} times its cost"
    return f"the fastest of all: {trade}" if place == len(front) - 1 else trade


def _study(plan: Plan, row: Row) -> dict[str, Any]:
    points = plan.points()
    file = points[int(row["point"])].file
    return file.model_dump(exclude_none=True, exclude={"provenance"})
