"""All-reduces of a tensor-parallel group, timed inside a captured CUDA graph."""

from pathlib import Path

import numpy as np

from calibration.cost_model import FloatArray
from calibration.errors import CalibrationError
from calibration.kernels.curves import Curve, settled
from calibration.kernels.reading import read_kernel_table
from calibration.model_spec import ModelSpec

_US_PER_MS = 1e3
_GRAPH = "vllm_graph"
_EAGER = "vllm_eager"
FUSED_UP_TO_BYTES = {2: 64 << 20, 4: 32 << 20, 8: 1 << 20}
"""Of compute capability 10.0, by the number of GPUs: vLLM's FI_ALLREDUCE_FUSION_MAX_SIZE_MB."""

_LINK_BYTES = (128.0, float(2**30))
_ONE_STAGE_BELOW_BYTES = 8 << 20
_MESSAGE_UNIT_BYTES = 16  # a message of vLLM's own kernel is a multiple


def read_all_reduce(file: Path) -> dict[int, Curve]:
    """Return the times over message bytes, by the number of GPUs.

    From captured graphs: eager times contain the launch, which the device does not wait for.
    A graph's time is never taken above the eager time of the same call: that is noise.

    Raises:
        CalibrationError: the table can't be used.
    """
    columns = read_kernel_table(file, ("num_gpus", "message_size", "backend", "allreduce_dtype"))
    times: dict[str, dict[tuple[int, int], float]] = {_GRAPH: {}, _EAGER: {}}
    for gpus, size, backend, latency in zip(
        columns["num_gpus"].tolist(),
        columns["message_size"].tolist(),
        columns["backend"].tolist(),
        columns["latency"].tolist(),
        strict=True,
    ):
        times.setdefault(backend, {})[gpus, size] = latency * _US_PER_MS
    graph, eager = times[_GRAPH], times[_EAGER]
    if not graph:
        raise CalibrationError(f"{file}: has no rows with backend {_GRAPH}")
    curves: dict[int, Curve] = {}
    for gpus in sorted({gpus for gpus, _ in graph}):
        sizes = sorted(size for count, size in graph if count == gpus)
        values = [min(graph[gpus, s], eager.get((gpus, s), graph[gpus, s])) for s in sizes]
        curves[gpus] = Curve(np.array(sizes, dtype=float), settled(np.array(values)))
    return curves


def read_fused_all_reduce(file: Path) -> dict[int, Curve]:
    """Return the times of the all-reduce that FlashInfer took over from TensorRT-LLM.

    Raises:
        CalibrationError: the table can't be used.
    """
    columns = read_kernel_table(file, ("num_gpus", "message_size", "allreduce_dtype"))
    curves: dict[int, Curve] = {}
    for gpus in np.unique(columns["num_gpus"]).tolist():
        rows = np.flatnonzero(columns["num_gpus"] == gpus)
        rows = rows[np.argsort(columns["message_size"][rows])]
        sizes = columns["message_size"][rows].astype(float)
        curves[gpus] = Curve(sizes, settled(columns["latency"][rows] * _US_PER_MS))
    return curves


def with_fused(own: dict[int, Curve], fused: dict[int, Curve]) -> dict[int, Curve]:
    """Return the times of an engine that fuses all-reduces of small messages with the norm.

    Since 0.13 vLLM does so by default on Blackwell, with FlashInfer's kernel, for messages up to a
    limit (its `fi_allreduce_fusion_max_size_mb`); larger ones go as before. The norm stays counted
    apart, as the kernel does its work too.
    """
    curves = dict(own)
    for gpus, limit_bytes in FUSED_UP_TO_BYTES.items():
        if gpus in own and gpus in fused:
            sizes, times = own[gpus].axis, own[gpus].time_us
            is_fused = (sizes <= limit_bytes) & (sizes <= fused[gpus].axis[-1])
            quicker = np.minimum(times, fused[gpus].at(sizes))
            curves[gpus] = Curve(sizes, np.where(is_fused, quicker, times))
    return curves


def link_all_reduce(num_gpus: int, bytes_per_s: float, latency_s: float) -> Curve:
    """Return vLLM's times over a link that is known by its rate and latency alone (alpha-beta).

    A ring, as NCCL's: 2 (p - 1) steps, each a latency and 1/p of the message; nothing for one GPU.
    But two GPUs read each other's message at once, in one step, below 8 MiB: vLLM's own all-reduce,
    which it uses between two GPUs that reach each other's memory, over PCIe, too (0.29.0:
    `should_custom_ar` in `custom_all_reduce.py`, and `custom_all_reduce.cuh`). What vLLM has for
    more GPUs needs NVLink: take measured tables for these.
    """
    least, most = _LINK_BYTES
    if num_gpus != 2:
        size = np.array([least, most])
        return Curve(size, _ring_s(size, num_gpus, bytes_per_s, latency_s) * 1e6)
    small = np.array([least, _ONE_STAGE_BELOW_BYTES - _MESSAGE_UNIT_BYTES])
    large = np.array([_ONE_STAGE_BELOW_BYTES, most])
    one_stage_s = latency_s + small / bytes_per_s
    ring_s = _ring_s(large, num_gpus, bytes_per_s, latency_s)
    return Curve(np.concatenate([small, large]), np.concatenate([one_stage_s, ring_s]) * 1e6)


def _ring_s(size: FloatArray, num_gpus: int, bytes_per_s: float, latency_s: float) -> FloatArray:
    return 2 * (num_gpus - 1) * (latency_s + size / num_gpus / bytes_per_s)


def gather_logits_us(all_reduce: Curve | None, model: ModelSpec, rows: FloatArray) -> FloatArray:
    """Return the time in which each GPU gets the others' share of the logits.

    Gathering is the second half of an all-reduce of the same bytes.
    """
    if all_reduce is None:
        return np.zeros_like(rows)
    return all_reduce.at(rows * model.vocab_size * model.dtype_bytes) / 2
