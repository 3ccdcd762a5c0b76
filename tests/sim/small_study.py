"""Studies made in a line, for tests that need no file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from calibration import CostModel, load_gpu, load_model
from sim.config import EngineConfig, ResolvedStudy
from sim.errors import SimulationError
from sim.run_result import RunResult
from sim.scheduler.config import CacheConfig, SchedulerConfig
from sim.simulation import simulate
from traces import RequestSpec, Trace

MODEL, GPU = load_model("llama-3.2-1b"), load_gpu("l4")


def make_study(
    requests: Sequence[RequestSpec],
    scheduler: SchedulerConfig,
    cache: CacheConfig,
    cost: CostModel,
    *,
    leap: bool = True,
    engine: dict[str, float] | None = None,
    **others: Any,
) -> ResolvedStudy:
    config = EngineConfig(scheduler, cache, "test", leap=leap, **(engine or {}))
    return ResolvedStudy(
        "test", 0, Trace.from_requests(requests), MODEL, GPU, cost, config, **others
    )


def run_unless_endless(study: ResolvedStudy) -> RunResult | None:
    """The result; None if requests preempt each other for ever (one random load in a thousand)."""
    try:
        return simulate(study)
    except SimulationError as error:
        if "without end" not in str(error):
            raise
        return None
