"""Studies made in a line, for tests that need no file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from calibration import CostModel, load_gpu, load_model
from sim.config import EngineConfig, ResolvedStudy
from sim.scheduler.config import CacheConfig, SchedulerConfig
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
