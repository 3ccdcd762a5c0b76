"""All-reduces of a tensor-parallel group, timed between processes: one a GPU, or on the CPU.

NCCL between CUDA devices, gloo between processes of one machine. On CUDA a time is that of calls
in a row between two events, so that launches are hidden as they are inside a graph; on the CPU it
is the wall clock's. Serving engines have quicker all-reduces of their own for small messages
between GPUs of one board: NCCL's times are upper bounds for them.
"""

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from calibration.bench.device import BenchDevice, torch_dtype
from calibration.bench.group import AllReduceTimes
from calibration.errors import CalibrationError

_WARM_UPS, _REPEATS, _CALLS_IN_A_ROW = 3, 15, 5


class _Group(NamedTuple):
    """What every process is told. `folder` is where they meet, and where times are left."""

    folder: str
    backend: str
    num_ranks: int
    num_threads: int
    dtype: str
    message_bytes: tuple[int, ...]


def time_all_reduces(
    device: BenchDevice, num_ranks: int, dtype: str, message_bytes: Sequence[int]
) -> AllReduceTimes:
    """Return medians over repeats, for each size of message.

    Raises:
        CalibrationError: too few devices, no backend for them, or a process that fails.
    """
    backend = _backend(device, num_ranks)
    with tempfile.TemporaryDirectory(prefix="headway-all-reduce-") as folder:
        group = _Group(folder, backend, num_ranks, device.num_threads, dtype, tuple(message_bytes))
        try:
            mp.spawn(_rank, args=(group,), nprocs=num_ranks, join=True)
        except (mp.ProcessRaisedException, mp.ProcessExitedException) as error:
            last = str(error).strip().splitlines()[-1]
            raise CalibrationError(
                f"{device.name}: an all-reduce of {num_ranks} {backend} processes failed: {last}"
            ) from error
        times_us = json.loads((Path(folder) / "times.json").read_text(encoding="utf-8"))
    return AllReduceTimes(backend, num_ranks, group.message_bytes, tuple(times_us))


def _backend(device: BenchDevice, num_ranks: int) -> str:
    if not dist.is_available():
        raise CalibrationError(f"torch {torch.__version__} was built without torch.distributed")
    if not device.is_cuda:
        return "gloo"
    count = torch.cuda.device_count()
    if num_ranks > count:
        raise CalibrationError(
            f"a tensor-parallel group of {num_ranks} needs as many CUDA devices; torch sees {count}"
        )
    if not dist.is_nccl_available():
        raise CalibrationError(f"torch {torch.__version__} was built without NCCL")
    return "nccl"


def _rank(rank: int, group: _Group) -> None:
    """One process of the group; the first one writes the times."""
    torch.set_num_threads(group.num_threads)
    device = torch.device("cuda", rank) if group.backend == "nccl" else torch.device("cpu")
    if group.backend == "nccl":
        torch.cuda.set_device(device)
    store = f"file://{group.folder}/store"
    dist.init_process_group(group.backend, init_method=store, rank=rank, world_size=group.num_ranks)
    try:
        dtype = torch_dtype(group.dtype)
        times_us = [_time_us(device, dtype, size) for size in group.message_bytes]
        if rank == 0:
            (Path(group.folder) / "times.json").write_text(json.dumps(times_us), encoding="utf-8")
        dist.barrier()
    finally:
        dist.destroy_process_group()


def _time_us(device: torch.device, dtype: torch.dtype, message_bytes: int) -> float:
    message = torch.zeros(max(1, message_bytes // dtype.itemsize), dtype=dtype, device=device)

    def calls() -> None:
        for _ in range(_CALLS_IN_A_ROW):
            dist.all_reduce(message)

    timed = _timed_on_cuda if device.type == "cuda" else _timed_on_cpu
    samples = [timed(calls) for _ in range(_WARM_UPS + _REPEATS)][_WARM_UPS:]
    return statistics.median(samples) / _CALLS_IN_A_ROW


def _timed_on_cpu(work: Callable[[], Any]) -> float:
    dist.barrier()
    before_s = time.perf_counter()
    work()
    return (time.perf_counter() - before_s) * 1e6


def _timed_on_cuda(work: Callable[[], Any]) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    dist.barrier()
    torch.cuda.synchronize()
    begin.record()
    work()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end)) * 1e3
