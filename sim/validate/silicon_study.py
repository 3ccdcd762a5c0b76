"""Measured rows predicted: which rows belong together, and the simulation of one."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from calibration import CostModel, GpuSpec, ModelSpec, load_gpu, load_model
from sim.config.engine_options import resolve_engine
from sim.config.resolved import EngineConfig, ResolvedStudy
from sim.config.schema import EngineSection
from sim.metrics import tpot_s, ttft_s
from sim.rng import Streams
from sim.simulation import simulate
from sim.validate.comparison import Comparison
from sim.validate.harness import HARNESSES, Harness
from sim.validate.silicon_rows import SiliconRow
from traces import Trace

SATURATED_TTFT_S = 5.0
"""Above it a measured TTFT is the length of a queue: such rows are reported apart."""

MakeCost = Callable[[ModelSpec, GpuSpec, int, str], CostModel]
"""(model, GPU, tensor parallel size, KV cache dtype) -> step times."""


@dataclass(frozen=True, slots=True)
class SiliconStudy:
    """Rows of one source that share model, GPU, engine release and harness."""

    name: str
    model: str
    model_path: str
    system: str
    engine_version: str
    weight_dtype: str
    tensor_parallel_sizes: tuple[int, ...]
    harness: str

    def holds(self, row: SiliconRow) -> bool:
        """Whether a row belongs to the study."""
        return (
            row.mode == "agg"
            and row.engine == "vllm"
            and row.model == self.model_path
            and row.system == self.system
            and row.engine_version == self.engine_version
            and row.weight_dtype == self.weight_dtype
            and row.tensor_parallel_size in self.tensor_parallel_sizes
        )


SILICON_STUDIES: tuple[SiliconStudy, ...] = (
    SiliconStudy(
        "qwen3-32b-h100",
        "qwen3-32b",
        "Qwen/Qwen3-32B",
        "h100_sxm",
        "0.12.0",
        "",
        (2, 4),
        "gap-analysis",
    ),
    SiliconStudy(
        "llama-3.1-70b-fp8-b200",
        "llama-3.1-70b-fp8",
        "meta-llama/Llama-3.1-70B",
        "b200_sxm",
        "",
        "fp8",
        (1, 2, 4, 8),
        "inferencex-70b-b200",
    ),
    SiliconStudy(
        "gpt-oss-120b-h200",
        "gpt-oss-120b",
        "openai/gpt-oss-120b",
        "h200_sxm",
        "0.18.0",
        "nvfp4",
        (1, 2, 4, 8),
        "inferencex-gpt-oss-h200",
    ),
)


def predict_row(
    study: SiliconStudy, row: SiliconRow, make_cost: MakeCost, harness: Harness | None = None
) -> Comparison:
    """Simulate the row's closed loop and set the means beside the measured ones.

    `harness` is the study's own unless given.

    Raises:
        StudyError, CalibrationError: the row can't be simulated: the model does not fit, or
            there is no profile.
    """
    resolved = _resolved(study, row, harness or HARNESSES[study.harness], make_cost)
    requests = simulate(resolved).requests
    return Comparison(
        name=_name(row),
        groups=_groups(row),
        measured_ttft_s=row.ttft_s,
        predicted_ttft_s=float(np.nanmean(ttft_s(requests))),
        measured_tpot_s=row.tpot_s,
        predicted_tpot_s=float(np.nanmean(tpot_s(requests))),
        is_saturated=row.ttft_s >= SATURATED_TTFT_S,
    )


def _resolved(
    study: SiliconStudy, row: SiliconRow, harness: Harness, make_cost: MakeCost
) -> ResolvedStudy:
    model, gpu = load_model(study.model), load_gpu(row.system)
    return ResolvedStudy(
        name=study.name,
        seed=0,
        trace=_trace(row, harness),
        model=model,
        gpu=gpu,
        cost_model=make_cost(model, gpu, row.tensor_parallel_size, harness.kv_cache_dtype),
        engine=_engine(row, harness, model, gpu),
        load=harness.load(row.concurrency),
    )


def _engine(row: SiliconRow, harness: Harness, model: ModelSpec, gpu: GpuSpec) -> EngineConfig:
    section = EngineSection(
        max_num_seqs=harness.max_num_seqs,
        max_num_batched_tokens=harness.max_num_batched_tokens(
            row.num_prompt_tokens, row.concurrency
        ),
        gpu_memory_utilization=harness.gpu_memory_utilization,
        tensor_parallel_size=row.tensor_parallel_size,
        async_scheduling=harness.async_scheduling,
        kv_cache_dtype=harness.kv_cache_dtype,
        enable_prefix_caching=False,
        host_overhead_s=harness.host.per_step_s,
        host_overhead_per_request_s=harness.host.per_request_s,
    )
    return resolve_engine(section, model, gpu)


def _trace(row: SiliconRow, harness: Harness) -> Trace:
    num_requests = row.concurrency * harness.rounds
    rng = Streams(0).rng("lengths")

    def lengths(nominal: int) -> np.ndarray:
        lowest = max(1, round(nominal * harness.lengths_from))
        return rng.integers(lowest, nominal, num_requests, endpoint=True)

    return Trace.from_columns(
        np.zeros(num_requests), lengths(row.num_prompt_tokens), lengths(row.num_output_tokens)
    )


def _name(row: SiliconRow) -> str:
    return (
        f"tp {row.tensor_parallel_size}, {row.num_prompt_tokens} in, {row.num_output_tokens} out,"
        f" {row.concurrency} clients"
    )


def _groups(row: SiliconRow) -> tuple[str, ...]:
    return (
        f"tp {row.tensor_parallel_size}",
        f"{row.num_prompt_tokens} prompt tokens",
        f"{row.num_output_tokens} output tokens",
        f"{row.concurrency} clients",
    )
