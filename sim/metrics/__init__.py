"""Metrics of a run: pure functions of its rows, named and defined as in vLLM and aiperf."""

from sim.metrics.glossary import GLOSSARY, meaning
from sim.metrics.itl import (
    GapPool,
    GapSample,
    every_gap,
    finished_gaps,
    gap_pool,
    pooled_gaps,
    step_period_s,
)
from sim.metrics.latency import (
    LATENCY_COLUMNS,
    e2e_s,
    finished_values,
    is_finished,
    latency_columns,
    queue_time_s,
    tpot_s,
    ttft_s,
)
from sim.metrics.replicas import step_length_s
from sim.metrics.stats import PERCENTILES, Stats, stats_of, weighted_percentile
from sim.metrics.summary import SCHEMA_VERSION, summarise
from sim.metrics.throughput import (
    Window,
    completion_span,
    goodput,
    meets_slo,
    steady_window,
    throughput,
)
from sim.metrics.waits import has_split, time_split, wait_s

__all__ = [
    "GLOSSARY",
    "LATENCY_COLUMNS",
    "PERCENTILES",
    "SCHEMA_VERSION",
    "GapPool",
    "GapSample",
    "Stats",
    "Window",
    "completion_span",
    "e2e_s",
    "every_gap",
    "finished_gaps",
    "finished_values",
    "gap_pool",
    "goodput",
    "has_split",
    "is_finished",
    "latency_columns",
    "meaning",
    "meets_slo",
    "pooled_gaps",
    "queue_time_s",
    "stats_of",
    "steady_window",
    "step_length_s",
    "step_period_s",
    "summarise",
    "throughput",
    "time_split",
    "tpot_s",
    "ttft_s",
    "wait_s",
    "weighted_percentile",
]
