"""The device that is measured: what it is called, what it holds, which kernels it runs."""

import os
import platform
from dataclasses import dataclass

import torch

from calibration.bench.cpu import cpu_clock, cpu_name
from calibration.errors import CalibrationError

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, slots=True)
class BenchDevice:
    """A torch device and its description for the profile."""

    torch_device: torch.device
    name: str
    driver: str
    clocks: str
    num_threads: int

    @property
    def is_cuda(self) -> bool:
        """Whether work runs behind the host's back."""
        return bool(self.torch_device.type == "cuda")

    def execution(self, name: str) -> str:
        """Return how work runs, for the profile: eager or cuda-graph; on the CPU the threads."""
        if self.is_cuda:
            return name
        return f"{name}, {self.num_threads} thread{'s' if self.num_threads > 1 else ''}"

    def synchronize(self) -> None:
        """Wait until the device has done all."""
        if self.is_cuda:
            torch.cuda.synchronize(self.torch_device)

    def free_bytes(self) -> int:
        """Memory that a cache could take now."""
        if self.is_cuda:
            return int(torch.cuda.mem_get_info(self.torch_device)[0])
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def open_device(name: str, num_threads: int = 1) -> BenchDevice:
    """Return the device `cpu`, `cuda` or `cuda:N`; sets torch's number of CPU threads.

    Raises:
        CalibrationError: there is no such device, or torch was built without it.
    """
    torch.set_num_threads(num_threads)
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise CalibrationError(f"unknown device {name!r}; use cpu, cuda or cuda:N") from error
    if device.type == "cpu":
        return BenchDevice(device, cpu_name(), platform.release(), cpu_clock(), num_threads)
    if device.type != "cuda":
        raise CalibrationError(f"device {name!r} is not supported; use cpu, cuda or cuda:N")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if (device.index or 0) >= count:
        raise CalibrationError(
            f"device {name!r}: torch {torch.__version__} sees {count} CUDA devices here"
        )
    return BenchDevice(
        torch.device("cuda", device.index or 0),
        torch.cuda.get_device_name(device),
        f"CUDA {torch.version.cuda}",
        f"{_cuda_clock(device)} MHz at start",
        num_threads,
    )


def torch_dtype(name: str) -> torch.dtype:
    """Return the torch dtype of a format.

    Raises:
        CalibrationError: a format that the decoder does not run.
    """
    if name not in _DTYPES:
        raise CalibrationError(f"dtype is {name!r}; the decoder runs {', '.join(_DTYPES)}")
    return _DTYPES[name]


def _cuda_clock(device: torch.device) -> str:
    try:
        return str(torch.cuda.clock_rate(device))
    except (RuntimeError, ModuleNotFoundError):  # needs NVIDIA's management library
        return "unknown"
