"""The device that is measured: what it is called, what it holds, which kernels it runs."""

import gc
import os
import platform
from collections.abc import Callable
from dataclasses import dataclass

import torch

from calibration.bench.cpu import cpu_clock, cpu_name
from calibration.bench.gpu_state import ask_nvidia_smi
from calibration.bench.heap import keep_freed_memory
from calibration.errors import CalibrationError

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_LOAD_SIZE, _LOAD_CALLS = 4096, 8  # products that keep a GPU at its clock


@dataclass(frozen=True, slots=True)
class BenchDevice:
    """A torch device and its description for the profile.

    `uuid` is the GPU's own, "" on the CPU. `keeps_freed_memory`: see `heap`; False on CUDA, where
    torch does so itself. `clocks` is the CPU's at the start; see `clocks_now`.
    """

    torch_device: torch.device
    name: str
    driver: str
    clocks: str
    num_threads: int
    uuid: str = ""
    keeps_freed_memory: bool = False

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
        if not self.is_cuda:
            return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        # torch keeps what was freed, and the driver counts it as used.
        reserved = int(torch.cuda.memory_reserved(self.torch_device))
        used = int(torch.cuda.memory_allocated(self.torch_device))
        return int(torch.cuda.mem_get_info(self.torch_device)[0]) + reserved - used

    def clear(self) -> None:
        """Give back the memory of what nobody holds any more, such as an earlier model."""
        gc.collect()
        if self.is_cuda:
            torch.cuda.empty_cache()

    def clocks_now(self) -> str:
        """Return the clocks for a profile's notes; a GPU is kept busy while it is asked."""
        if not self.is_cuda:
            return self.clocks
        try:
            return ask_nvidia_smi(self.uuid, _load(self)).clocks("under load")
        except RuntimeError as error:  # of the device; what was measured is worth more
            return f"clocks unknown: {first_line(error)}"


def open_device(name: str, num_threads: int = 1) -> BenchDevice:
    """Return the device `cpu`, `cuda` or `cuda:N`; sets torch's number of CPU threads.

    For the CPU, this process's heap keeps freed memory from now on (`heap`).

    A CUDA device becomes the current one: events, streams and graphs are of the current device,
    whatever device the tensors are on.

    Raises:
        CalibrationError: there is no such device, or torch was built without it.
    """
    torch.set_num_threads(num_threads)
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise CalibrationError(f"unknown device {name!r}; use cpu, cuda or cuda:N") from error
    if device.type == "cpu":
        keeps = keep_freed_memory()
        name, system = cpu_name(), platform.release()
        return BenchDevice(device, name, system, cpu_clock(), num_threads, keeps_freed_memory=keeps)
    if device.type != "cuda":
        raise CalibrationError(f"device {name!r} is not supported; use cpu, cuda or cuda:N")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if (device.index or 0) >= count:
        raise CalibrationError(
            f"device {name!r}: torch {torch.__version__} sees {count} CUDA devices here"
        )
    return _open_cuda(torch.device("cuda", device.index or 0), num_threads)


def torch_dtype(name: str) -> torch.dtype:
    """Return the torch dtype of a format.

    Raises:
        CalibrationError: a format that the decoder does not run.
    """
    if name not in _DTYPES:
        raise CalibrationError(f"dtype is {name!r}; the decoder runs {', '.join(_DTYPES)}")
    return _DTYPES[name]


def _open_cuda(device: torch.device, num_threads: int) -> BenchDevice:
    try:
        torch.cuda.set_device(device)
        properties = torch.cuda.get_device_properties(device)
        torch.zeros(1, device=device).item()  # a GPU that this build of torch has no kernels for
    except RuntimeError as error:
        raise CalibrationError(
            f"device {device} can't be used by torch {torch.__version__}: {first_line(error)}"
        ) from error
    uuid = str(getattr(properties, "uuid", ""))
    uuid = uuid if not uuid or uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
    built_for = f"CUDA {torch.version.cuda}" if torch.version.cuda else f"HIP {torch.version.hip}"
    driver = f"{ask_nvidia_smi(uuid).driver}, {built_for}"
    return BenchDevice(device, properties.name, driver, "", num_threads, uuid)


def _load(device: BenchDevice) -> Callable[[], None]:
    """Some milliseconds of work for a GPU."""
    factor = torch.ones(_LOAD_SIZE, _LOAD_SIZE, dtype=torch.float16, device=device.torch_device)

    def work() -> None:
        for _ in range(_LOAD_CALLS):
            factor @ factor
        device.synchronize()

    return work


def first_line(error: BaseException) -> str:
    """Return what an error says first: CUDA's go on with advice for developers."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
