"""The summary of a run: every metric of its rows as plain JSON values, in a fixed order."""

from dataclasses import asdict
from typing import Any

import numpy as np

from sim.metrics.counts import (
    preemption_counts,
    prefix_cache_counts,
    request_counts,
    speculative_counts,
)
from sim.metrics.itl import GapPool, gap_pool
from sim.metrics.latency import (
    e2e_s,
    finished_values,
    is_finished,
    queue_time_s,
    tpot_s,
    ttft_s,
)
from sim.metrics.replicas import activity_span, kv_usage, replica_stats, step_stats
from sim.metrics.stats import Stats, stats_of
from sim.metrics.steadiness import not_steady
from sim.metrics.step_totals import step_totals
from sim.metrics.throughput import Window, goodput, steady_throughput, throughput
from sim.metrics.waits import time_split
from sim.run_result import Columns, RunInfo, RunResult

SCHEMA_VERSION = 2


def summarise(run: RunResult) -> dict[str, Any]:
    """Every metric of a run; the unit of each is in its key (`_s`, `_per_s`, `_tokens`, `_share`).

    Absent values are None, never NaN. `sim.metrics.glossary` has each formula.
    """
    requests, steps, info = run.requests, run.steps, run.info
    totals = step_totals(steps, len(info.replicas))
    span = activity_span(requests, totals)
    return {
        "schema_version": SCHEMA_VERSION,
        "run": info_section(info),
        "requests": request_counts(requests),
        "latency": latency_stats(requests, gap_pool(requests, steps, run.gaps)),
        "lengths": length_stats(requests),
        "throughput": throughput(requests),
        "steady_window": _steady_window(requests, steps, totals.last_end_s, info.load),
        "goodput": goodput(requests, info.slo),
        "preemption": preemption_counts(requests),
        "speculative": speculative_counts(requests),
        "prefix_cache": prefix_cache_counts(requests),
        "kv_cache": kv_usage(span, totals, info.replicas),
        "time_split": time_split(requests),
        "steps": step_stats(totals),
        "replicas": replica_stats(requests, span, totals),
    }


def _steady_window(
    requests: Columns, steps: Columns, last_end_s: float | None, load: str
) -> dict[str, Any] | None:
    rates = steady_throughput(requests, steps, last_end_s)
    if rates is None:
        return None
    window = Window(rates["start_s"], rates["end_s"])
    return {**rates, "not_steady": not_steady(requests, load, window)}


def info_section(info: RunInfo) -> dict[str, Any]:
    """What the run was made with, as JSON values: enough to build the `RunInfo` again."""
    return {
        "partial": info.partial,
        "load": info.load,
        "decides_as": info.decides_as,
        "warnings": list(info.warnings),
        "cost": dict(info.cost),
        "slo": asdict(info.slo),
        "one_token_per_emission": info.one_token_per_emission,
        "replicas": [asdict(replica) for replica in info.replicas],
    }


def latency_stats(requests: Columns, gaps: GapPool) -> dict[str, Stats]:
    """Latency statistics over finished requests, in seconds; `gaps` are those requests' gaps."""
    return {
        "ttft_s": stats_of(finished_values(requests, ttft_s(requests))),
        "tpot_s": stats_of(finished_values(requests, tpot_s(requests))),
        "itl_s": gaps.stats(),
        "e2e_s": stats_of(finished_values(requests, e2e_s(requests))),
        "queue_time_s": stats_of(finished_values(requests, queue_time_s(requests))),
    }


def length_stats(requests: Columns) -> dict[str, Stats]:
    """Realised prompt and output lengths of finished requests, tokens."""
    finished = is_finished(requests)
    return {
        "prompt_tokens": stats_of(np.asarray(requests["num_prompt_tokens"])[finished]),
        "output_tokens": stats_of(np.asarray(requests["num_output_tokens"])[finished]),
    }
