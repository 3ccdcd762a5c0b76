"""All-reduces of a tensor-parallel group, timed inside a captured CUDA graph."""

from pathlib import Path

import numpy as np

from calibration.errors import CalibrationError
from calibration.kernels.curves import Curve
from calibration.kernels.reading import read_kernel_table

_US_PER_MS = 1e3
_GRAPH = "vllm_graph"
_EAGER = "vllm_eager"


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
        curves[gpus] = Curve(np.array(sizes, dtype=float), np.array(values))
    return curves
