"""Stopwatches: CPU time of the thread, wall time, CUDA events, CUDA graphs."""

import time
from collections.abc import Callable
from typing import Any

import torch

from calibration.bench.device import BenchDevice
from calibration.bench.samples import Sample
from calibration.errors import CalibrationError

Timer = Callable[[Callable[[], Any]], Sample]
"""Runs something and returns how long it took."""

EXECUTIONS = ("eager", "cuda-graph")
_GRAPH_WARM_UPS = 2


def make_timer(device: BenchDevice, execution: str) -> Timer:
    """Return the stopwatch for a device.

    On the CPU with one thread the time that counts is that thread's CPU time: what the work
    takes when nobody else wants the core. With more threads it is the wall clock.

    Raises:
        CalibrationError: CUDA graphs without CUDA, or an unknown execution.
    """
    if execution not in EXECUTIONS:
        raise CalibrationError(f"execution is {execution!r}; it must be eager or cuda-graph")
    if device.is_cuda:
        return _CudaTimer(device, use_graph=execution == "cuda-graph")
    if execution != "eager":
        raise CalibrationError(f"execution cuda-graph needs a CUDA device, not {device.name}")
    return time_cpu if device.num_threads == 1 else time_wall


def time_cpu(work: Callable[[], Any]) -> Sample:
    """Time work of this thread alone."""
    wall_s, cpu_s = time.perf_counter(), time.thread_time()
    work()
    cpu_s = time.thread_time() - cpu_s
    return Sample(cpu_s, time.perf_counter() - wall_s, cpu_s)


def time_wall(work: Callable[[], Any]) -> Sample:
    """Time work of several threads; who was off its core can't be told."""
    wall_s = time.perf_counter()
    work()
    wall_s = time.perf_counter() - wall_s
    return Sample(wall_s, wall_s, wall_s)


class _CudaTimer:
    """Events around the work, or around the replay of a graph of it."""

    def __init__(self, device: BenchDevice, *, use_graph: bool) -> None:
        self._device, self._use_graph = device, use_graph

    def __call__(self, work: Callable[[], Any]) -> Sample:
        run = self._captured(work) if self._use_graph else work
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self._device.synchronize()
        begin.record()
        run()
        end.record()
        self._device.synchronize()
        time_s = float(begin.elapsed_time(end)) * 1e-3
        return Sample(time_s, time_s, time_s)

    def _captured(self, work: Callable[[], Any]) -> Callable[[], Any]:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(_GRAPH_WARM_UPS):
                work()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            work()
        graph.replay()  # its first replay uploads it
        return graph.replay  # type: ignore[no-any-return]
