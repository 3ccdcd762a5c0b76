"""A run as one flat row: every figure of its summary by its path, and what a study adds."""

from collections.abc import Mapping
from typing import Any

from sim.config import ResolvedStudy
from sim.metrics import (
    LATENCY_COLUMNS,
    finished_values,
    goodput,
    latency_columns,
    stats_of,
    summarise,
)
from sim.metrics.summary import length_stats
from sim.run_result import Columns, RunResult
from sim.study.full_load import lasting_rates
from sim.study.limits import limit_shares, main_limit
from sim.study.steady import kept_window, steadiness, trimmed
from sim.study.sweep_section import TrimSection

Row = dict[str, Any]


def result_row(study: ResolvedStudy, result: RunResult, trim: TrimSection | None = None) -> Row:
    """The row of a run; absent figures are None.

    Keys are the summary's paths (`latency.ttft_s.p99`), then `gpus`, `per_gpu.*`, `load.*`,
    `limits.*`, `steady.*` and `run.*`. `per_gpu.*` are rates that would last: of the steady window,
    or of an overloaded run's time at full load; `per_gpu.too_short` says why there are none. With
    `trim`, latencies, lengths and shares of good requests are those of the requests that it keeps;
    pooled ITL and goodput a second have no such form and are left out.
    """
    summary = summarise(result)
    window = kept_window(result.requests, trim)
    if trim is not None:
        kept = trimmed(result.requests, window)
        summary["latency"] = {**_latencies(kept), "itl_s": {}}
        summary["lengths"] = length_stats(kept)
        summary["goodput"] = _shares(goodput(kept, study.slo))
    row = dict(_leaves({k: v for k, v in summary.items() if k not in ("run", "replicas")}))
    row |= _load(study, result.requests)
    judged = steadiness(result.requests, window)
    row["load.drift_share"] = judged.backlog and judged.backlog.drift_share
    row |= _rates(study, result, bool(judged.backlog and judged.backlog.is_growing), summary)
    row["steady.is_steady"] = judged.is_steady
    row["steady.reason"] = "; ".join(judged.reasons)
    return row | _limits(result, summary) | _origin(result)


def error_row(error: Exception) -> Row:
    """The row of a point that could not be run."""
    return {"error": " ".join(str(error).split()) or type(error).__name__}


def _latencies(requests: Columns) -> dict[str, Any]:
    columns = latency_columns(requests)
    return {name: stats_of(finished_values(requests, columns[name])) for name in LATENCY_COLUMNS}


def _shares(good: dict[str, Any] | None) -> dict[str, Any] | None:
    """Goodput without its rate, whose span the trimmed requests share with others."""
    return good and {key: value for key, value in good.items() if not key.endswith("_per_s")}


def _rates(
    study: ResolvedStudy, result: RunResult, is_growing: bool, summary: Mapping[str, Any]
) -> Row:
    """Lasting rates a GPU; of the whole run where it has no steady window."""
    gpus = study.num_replicas * study.engine.tensor_parallel_size
    steady = summary["steady_window"] or summary["throughput"]
    rates = lasting_rates(result, is_growing, steady)
    return {
        "load.is_saturated": rates.is_saturated,
        "gpus": gpus,
        "per_gpu.requests_per_s": _share(rates.requests_per_s, gpus),
        "per_gpu.output_tokens_per_s": _share(rates.output_tokens_per_s, gpus),
        "per_gpu.part": rates.part,
        "per_gpu.too_short": rates.too_short,
    }


def _share(rate: float | None, gpus: int) -> float | None:
    return None if rate is None else rate / gpus


def _load(study: ResolvedStudy, requests: Columns) -> Row:
    arrival_s = requests["arrival_s"]
    length_s = float(arrival_s.max() - arrival_s.min())
    rate = (len(arrival_s) - 1) / length_s if length_s > 0 else None
    return {"load.arrival_rate_per_s": rate, "load.trace_sha256": study.trace.content_sha256}


def _limits(result: RunResult, summary: Mapping[str, Any]) -> Row:
    shares = limit_shares(result.steps, result.info.replicas)
    busy = [r["busy_share"] for r in summary["replicas"] if r["busy_share"] is not None]
    busy_share = sum(busy) / len(busy) if busy else None
    named = {f"limits.{name}": value for name, value in shares.items()}
    return {**named, "limits.busy_share": busy_share, "limits.main": main_limit(shares, busy_share)}


def _origin(result: RunResult) -> Row:
    info = result.info
    return {
        "run.cost": str(info.cost.get("label", "")),
        "run.is_calibrated": bool(info.cost.get("calibrated")),
        "run.warnings": "; ".join(info.warnings),
        "error": "",
    }


def _leaves(value: Mapping[str, Any], path: str = "") -> Row:
    """Numbers, text and None by dotted path; lists are left out."""
    row: Row = {}
    for key, item in value.items():
        name = f"{path}.{key}" if path else str(key)
        if isinstance(item, Mapping):
            row |= _leaves(item, name)
        elif not isinstance(item, list | tuple):
            row[name] = item
    return row
