"""All-reduces of a tensor-parallel group, timed between processes: one a GPU, or on the CPU.

NCCL between CUDA devices, gloo between processes of one machine. On CUDA a time is that of calls
in a row between two events, launched while the devices still wait, so that launches are hidden as
they are inside a graph; on the CPU it is the wall clock's. Serving engines have quicker all-reduces
of their own for small messages between GPUs of one board: NCCL's times are upper bounds for them.
"""

import json
import tempfile
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from calibration.bench.device import BenchDevice, open_device, torch_dtype
from calibration.bench.group import AllReduceTimes
from calibration.bench.samples import mean_time_s
from calibration.bench.timing import time_in_a_row
from calibration.errors import CalibrationError

_WARM_UPS, _REPEATS, _CALLS_IN_A_ROW = 3, 15, 5
_TIMEOUT = timedelta(seconds=120)  # of a call: torch would wait ten minutes for a lost process


class _Group(NamedTuple):
    """What every process is told. `folder` is where they meet, and where times are left."""

    folder: str
    backend: str
    devices: tuple[str, ...]
    num_threads: int
    dtype: str
    message_bytes: tuple[int, ...]


def time_all_reduces(
    device: BenchDevice, num_ranks: int, dtype: str, message_bytes: Sequence[int]
) -> AllReduceTimes:
    """Return means over repeats, for each size of message; outliers are clipped, as in tables.

    Raises:
        CalibrationError: too few devices, no backend for them, or a process that fails.
    """
    backend = _backend(device, num_ranks)
    devices = _devices(device, num_ranks)
    with tempfile.TemporaryDirectory(prefix="headway-all-reduce-") as folder:
        group = _Group(folder, backend, devices, device.num_threads, dtype, tuple(message_bytes))
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


def _devices(device: BenchDevice, num_ranks: int) -> tuple[str, ...]:
    """The devices of the group: on CUDA the one that is measured and those after it, all alike."""
    if not device.is_cuda:
        return ("cpu",) * num_ranks
    count, first = torch.cuda.device_count(), device.torch_device.index
    numbers = [(first + rank) % count for rank in range(num_ranks)]
    for number in numbers:
        other = torch.cuda.get_device_name(number)
        if other != device.name:
            raise CalibrationError(
                f"a tensor-parallel group is of like devices, but cuda:{first} is {device.name}"
                f" and cuda:{number} is {other}"
            )
    return tuple(f"cuda:{number}" for number in numbers)


def _rank(rank: int, group: _Group) -> None:
    """One process of the group; the first one writes the times."""
    device = open_device(group.devices[rank], group.num_threads)
    dist.init_process_group(
        group.backend,
        init_method=f"file://{group.folder}/store",
        rank=rank,
        world_size=len(group.devices),
        timeout=_TIMEOUT,
        # Else NCCL takes the rank for the device's number at the first barrier.
        device_id=device.torch_device if device.is_cuda else None,
    )
    try:
        dtype = torch_dtype(group.dtype)
        times_us = [_time_us(device, dtype, size) for size in group.message_bytes]
        if rank == 0:
            (Path(group.folder) / "times.json").write_text(json.dumps(times_us), encoding="utf-8")
        dist.barrier()
    finally:
        dist.destroy_process_group()


def _time_us(device: BenchDevice, dtype: torch.dtype, message_bytes: int) -> float:
    to = device.torch_device
    message = torch.zeros(max(1, message_bytes // dtype.itemsize), dtype=dtype, device=to)
    token = torch.zeros(1, dtype=dtype, device=to)

    def time_s() -> float:
        dist.barrier()
        return time_in_a_row(
            device,
            lambda: dist.all_reduce(message),
            _CALLS_IN_A_ROW,
            # The devices begin together: who comes first would count the wait for the others.
            align=(lambda: dist.all_reduce(token)) if device.is_cuda else (lambda: None),
        )

    samples = [time_s() for _ in range(_WARM_UPS + _REPEATS)][_WARM_UPS:]
    return mean_time_s(samples) * 1e6
