"""What the benchmarks run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from calibration import RooflineCost, load_gpu, load_model
from sim._core import native
from sim.config import ResolvedStudy
from sim.scheduler.config import CacheConfig, SchedulerConfig
from tests.sim.small_study import make_study
from traces import RequestSpec

CORES = ["python", *(["compiled"] if native is not None else [])]
RUNNING = (16, 64, 256, 1024, 4096)
_AZURE = "data/traces/azure_2023/AzureLLMInferenceTrace_conv.csv"
_RATE_PER_S = 6.45  # a replica: a load that an H100 carries well


def steady_decode(
    num_running: int, num_output_tokens: int, core: str, *, is_async: bool
) -> ResolvedStudy:
    """Requests that begin together and then decode to their end, all of one length."""
    specs = [RequestSpec(i, 0.0, 32, num_output_tokens) for i in range(num_running)]
    return _crowd(specs, num_running, num_output_tokens, core, is_async=is_async)


def crowd_with_visitors(num_running: int, num_visitors: int, core: str) -> ResolvedStudy:
    """A crowd that decodes all the time, and requests that come and go one by one beside it."""
    num_steps = 10_000
    crowd = [RequestSpec(i, 0.0, 32, num_steps) for i in range(num_running)]
    visitors = [RequestSpec(num_running + i, 1.0 + 0.05 * i, 100, 3) for i in range(num_visitors)]
    return _crowd([*crowd, *visitors], num_running + 8, num_steps, core, is_async=True)


def _crowd(
    specs: list[RequestSpec],
    max_num_seqs: int,
    num_output_tokens: int,
    core: str,
    *,
    is_async: bool,
) -> ResolvedStudy:
    blocks_each = (num_output_tokens + 32) // 16 + 3
    study = make_study(
        specs,
        SchedulerConfig(
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max(8192, max_num_seqs),
            max_model_len=2_000_000,
            async_scheduling=is_async,
        ),
        CacheConfig(max_num_seqs * blocks_each + 10),
        RooflineCost(load_model("llama-3.2-1b"), load_gpu("l4")),
        leap=True,
    )
    return replace(study, engine=replace(study.engine, core=core))


def azure_values(replicas: int, arrivals: str, caching: bool) -> dict[str, Any]:
    """A study of the lengths of the Azure 2023 conversation trace, whose file must be at hand."""
    path = Path(__file__).resolve().parents[3] / "shared" / _AZURE
    if not path.is_file():
        pytest.skip(f"no {_AZURE} beside the checkout")
    trace: dict[str, Any] = {"path": str(path)}
    if arrivals == "Poisson":
        trace["poisson_rate_per_s"] = _RATE_PER_S * replicas
    return {
        "name": "benchmark",
        "model": "llama-3.1-8b",
        "hardware": "h100-sxm",
        "cost_model": {"kind": "roofline"},
        "trace": trace,
        "replicas": replicas,
        "engine": {"enable_prefix_caching": caching},
    }
