"""Stopwatches: CPU time of the thread, wall time, CUDA events, CUDA graphs."""

import time
from collections.abc import Callable
from typing import Any

import torch

from calibration.bench.device import BenchDevice
from calibration.bench.samples import Sample
from calibration.errors import CalibrationError

Work = Callable[[], Any]

Timer = Callable[[Work, Work], Sample]
"""Runs the second, which leaves caches as the step before would, then the first, and times that.

Nothing of the first runs between them: a graph of it is made before.
"""

EXECUTIONS = ("eager", "cuda-graph")
_GRAPH_WARM_UPS = 2
_HEAD_START_CYCLES = 20_000_000  # some 10 ms, in which the host launches all calls


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
        return GraphTimer(device) if execution == "cuda-graph" else EventTimer(device)
    if execution != "eager":
        raise CalibrationError(f"execution cuda-graph needs a CUDA device, not {device.name}")
    return time_cpu if device.num_threads == 1 else time_wall


def time_cpu(work: Work, before: Work) -> Sample:
    """Time work of this thread alone."""
    before()
    wall_s, cpu_s = time.perf_counter(), time.thread_time()
    work()
    cpu_s = time.thread_time() - cpu_s
    return Sample(cpu_s, time.perf_counter() - wall_s, cpu_s)


def time_wall(work: Work, before: Work) -> Sample:
    """Time work of several threads; who was off its core can't be told."""
    before()
    wall_s = time.perf_counter()
    work()
    wall_s = time.perf_counter() - wall_s
    return Sample(wall_s, wall_s, wall_s)


class EventTimer:
    """CUDA events around the work, launched by the host as it goes; the device was idle before."""

    def __init__(self, device: BenchDevice) -> None:
        self._device = device

    def __call__(self, work: Work, before: Work) -> Sample:
        """Time work."""
        before()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self._device.synchronize()
        begin.record()
        work()
        end.record()
        self._device.synchronize()
        time_s = float(begin.elapsed_time(end)) * 1e-3
        return Sample(time_s, time_s, time_s)


class GraphTimer:
    """CUDA events around the replay of a graph of the work.

    Warm-ups and capture are on one stream: products have a workspace for each stream, which a
    stream that is new to them would allocate inside the graph. All graphs share one pool of memory;
    the last one is kept until the next is there, for a pool that no graph holds is gone.
    """

    def __init__(self, device: BenchDevice) -> None:
        self._events = EventTimer(device)
        self._stream = torch.cuda.Stream(device.torch_device)
        self._last: Any = None

    def __call__(self, work: Work, before: Work) -> Sample:
        """Time the replay of a new graph of the work."""
        self._last = self._captured(work)
        self._last.replay()  # the first one uploads it
        return self._events(self._last.replay, before)

    def _captured(self, work: Work) -> Any:
        current = torch.cuda.current_stream()
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            for _ in range(_GRAPH_WARM_UPS):
                work()
        current.wait_stream(self._stream)
        graph = torch.cuda.CUDAGraph()
        pool = None if self._last is None else self._last.pool()
        with torch.cuda.graph(graph, pool=pool, stream=self._stream):
            work()
        return graph


def time_in_a_row(device: BenchDevice, work: Work, calls: int, align: Work = lambda: None) -> float:
    """Return the seconds of one of some calls in a row.

    On CUDA the device waits until the host has launched all: what counts is the device's time, as
    inside a graph. `align` runs right before the first call.
    """
    if not device.is_cuda:
        align()
        begin_s = time.perf_counter()
        for _ in range(calls):
            work()
        return (time.perf_counter() - begin_s) / calls
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    device.synchronize()
    torch.cuda._sleep(_HEAD_START_CYCLES)
    align()
    begin.record()
    for _ in range(calls):
        work()
    end.record()
    device.synchronize()
    return float(begin.elapsed_time(end)) * 1e-3 / calls
