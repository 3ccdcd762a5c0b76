"""Recorded runs of vLLM with the times of every request: LLMServingSim's benchmark.

A run's folder holds `requests.jsonl` (measured), `meta.json` (engine settings) and `config.json`
(the machine, as its owners declare it: link rate and latency); the arrivals are in the workload
file that `meta.json` names.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from calibration import GpuSpec, ModelSpec, ProfileCost, load_gpu, load_model
from calibration.kernels.all_reduce import link_all_reduce
from calibration.layerwise import build_layerwise_profile, find_layerwise_files
from sim.config.engine_options import resolve_engine
from sim.config.resolved import EngineConfig, ResolvedStudy
from sim.config.schema import EngineSection
from sim.errors import StudyError
from sim.metrics import tpot_s
from sim.run_result import RunResult
from sim.simulation import simulate
from sim.validate.harness import HOST_OVERHEADS
from traces import Trace

_BLOCK = 16
_GPU_MEMORY_UTILIZATION = 0.9
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class BenchRun:
    """One recorded run."""

    folder: Path
    gpu: str
    model: str
    settings: Mapping[str, Any]
    link_bytes_per_s: float
    link_latency_s: float
    engine_version: str
    workload: Path
    profiles: Path


@dataclass(frozen=True, slots=True)
class BenchComparison:
    """Per-request times in seconds, measured and predicted, in the order of the requests."""

    name: str
    measured: Mapping[str, FloatArray]
    predicted: Mapping[str, FloatArray]
    label: str

    def mean_error(self, metric: str) -> float:
        """Signed relative error of the mean."""
        measured, predicted = self.measured[metric], self.predicted[metric]
        return float(np.nanmean(predicted) / np.nanmean(measured)) - 1.0

    def percentile_error(self, metric: str, percent: float) -> float:
        """Signed relative error of a percentile."""
        measured, predicted = self.measured[metric], self.predicted[metric]
        ratio = np.nanpercentile(predicted, percent) / np.nanpercentile(measured, percent)
        return float(ratio) - 1.0


def find_bench_runs(data: Path) -> list[BenchRun]:
    """Return the runs under `data` that have measurements, settings, workload and profiles.

    Raises:
        StudyError: a file is broken, or a run names a workload that is not there.
    """
    folders = sorted(file.parent for file in data.glob("*/*/requests.jsonl"))
    return [_bench_run(folder, data) for folder in folders]


def predict_bench_run(run: BenchRun) -> BenchComparison:
    """Simulate the run's arrivals on its own GPU's layer-wise profile.

    vLLM stamps a request as queued when the engine takes it in, between two steps; times are
    taken from that stamp on both sides.

    Raises:
        StudyError, CalibrationError: something is missing or broken.
    """
    model, gpu = load_model(run.model), load_gpu(run.gpu)
    cost = ProfileCost(_profile(run, model, gpu))
    engine = _engine(run, model, gpu)
    study = ResolvedStudy(run.folder.name, 0, _trace(run.workload), model, gpu, cost, engine)
    result = simulate(study)
    return BenchComparison(
        name=f"{run.folder.name} on {gpu.name}",
        measured=_measured(run.folder / "requests.jsonl"),
        predicted=_predicted(result),
        label=cost.provenance.label,
    )


def _bench_run(folder: Path, data: Path) -> BenchRun:
    meta = _json(folder / "meta.json")
    machine = _json(folder / "config.json")
    settings = meta["engine_kwargs"]
    stem = Path(str(meta["dataset_path"])).stem
    workload = data / "workloads" / f"{stem}.compact.jsonl"
    if not workload.is_file():
        raise StudyError(f"{folder / 'meta.json'}: its workload {workload} is not there")
    return BenchRun(
        folder=folder,
        gpu=folder.parent.name,
        model=str(settings["model"]),
        settings=settings,
        link_bytes_per_s=float(machine["link_bw"]) * 1e9,
        link_latency_s=float(machine["link_latency"]) * 1e-9,
        engine_version=str(meta["vllm_version"]),
        workload=workload,
        profiles=data / "profiles",
    )


def _profile(run: BenchRun, model: ModelSpec, gpu: GpuSpec) -> Any:
    tp = int(run.settings["tensor_parallel_size"])
    link = link_all_reduce(tp, run.link_bytes_per_s, run.link_latency_s) if tp > 1 else None
    files = find_layerwise_files(run.profiles, model, tp, run.gpu)
    return build_layerwise_profile(files, model, gpu, tensor_parallel_size=tp, all_reduce=link)


def _engine(run: BenchRun, model: ModelSpec, gpu: GpuSpec) -> EngineConfig:
    release = ".".join(run.engine_version.split(".")[:2])
    if release not in HOST_OVERHEADS:
        raise StudyError(
            f"{run.folder / 'meta.json'}: no host overhead is declared for vLLM"
            f" {run.engine_version}; there is one for {', '.join(HOST_OVERHEADS)}"
        )
    host = HOST_OVERHEADS[release]
    section = EngineSection(
        max_num_seqs=int(run.settings["max_num_seqs"]),
        max_num_batched_tokens=int(run.settings["max_num_batched_tokens"]),
        tensor_parallel_size=int(run.settings["tensor_parallel_size"]),
        gpu_memory_utilization=_GPU_MEMORY_UTILIZATION,
        kv_cache_dtype=str(run.settings["kv_cache_dtype"]),
        async_scheduling=False,
        host_overhead_s=host.per_step_s,
        host_overhead_per_request_s=host.per_request_s,
    )
    return resolve_engine(section, model, gpu)


def _trace(workload: Path) -> Trace:
    rows = _json_lines(workload)
    arrival_s = np.array([row["timestamp"] for row in rows]) * 1e-3
    return Trace.from_columns(
        arrival_s - arrival_s.min(),
        [row["input_length"] for row in rows],
        [row["output_length"] for row in rows],
        prompts=[_segments(row, number) for number, row in enumerate(rows)],
    )


def _segments(row: Mapping[str, Any], number: int) -> tuple[tuple[int | str, int], ...]:
    """Full blocks by their hashes; what is left of the prompt is its own."""
    num_tokens = int(row["input_length"])
    full = [(block, _BLOCK) for block in row["hash_ids"][: num_tokens // _BLOCK]]
    rest = num_tokens - _BLOCK * len(full)
    return (*full, (f"rest-{number}", rest)) if rest else tuple(full)


def _measured(file: Path) -> dict[str, FloatArray]:
    rows = sorted(_json_lines(file), key=lambda row: int(row["request_id"].rpartition("-")[2]))
    queued, first, last, outputs = (
        np.array([row[key] for row in rows], dtype=np.float64)
        for key in ("queued_ts", "first_token_ts", "last_token_ts", "output_toks")
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        tpot = np.where(outputs > 1, (last - first) / (outputs - 1), np.nan)
    return {"TTFT": first - queued, "TPOT": tpot, "E2E": last - queued}


def _predicted(result: RunResult) -> dict[str, FloatArray]:
    requests = result.requests
    queued = _queued_s(result)
    return {
        "TTFT": requests["first_token_s"] - queued,
        "TPOT": tpot_s(requests),
        "E2E": requests["last_token_s"] - queued,
    }


def _queued_s(result: RunResult) -> FloatArray:
    """When the engine took each request in: the end of the step that ran at its arrival."""
    arrival_s = result.requests["arrival_s"]
    start_s, end_s = result.steps["start_s"], result.steps["end_s"]
    last = np.maximum(np.searchsorted(start_s, arrival_s, side="right") - 1, 0)
    is_busy = (start_s[last] <= arrival_s) & (arrival_s < end_s[last])
    return np.where(is_busy, end_s[last], arrival_s)


def _json(file: Path) -> dict[str, Any]:
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StudyError(f"{file}: can't be read as JSON: {error}") from error
    if not isinstance(value, dict):
        raise StudyError(f"{file}: must hold one JSON object")
    return value


def _json_lines(file: Path) -> list[dict[str, Any]]:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines if line]
    except (OSError, ValueError) as error:
        raise StudyError(f"{file}: can't be read as JSON lines: {error}") from error
