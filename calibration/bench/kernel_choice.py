"""Which paged attention kernel to measure: the quickest that gives the right result here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import NamedTuple

import torch

from calibration.bench.attention import GatherAttention, PagedAttention
from calibration.bench.device import BenchDevice, first_line
from calibration.bench.kernel_report import Tried
from calibration.bench.kernel_trial import TIMED, TRIALS, Trial, TrialBatch
from calibration.bench.paged_kernels import Missing, installed_kernels
from calibration.bench.table_kernels import Setting
from calibration.bench.timing import GraphTimer, time_in_a_row
from calibration.errors import CalibrationError

_RUNS, _CALLS_IN_A_ROW = 3, 20


class Choice(NamedTuple):
    """The kernel to take, and all that were tried."""

    kernel: PagedAttention
    tried: tuple[Tried, ...] = ()


def choose_attention(device: BenchDevice, setting: Setting, name: str = "") -> Choice:
    """Return the best paged kernel that runs on the device; on the CPU there is one.

    With a name, or a part of one, it is that one: what measured a profile must go on with it.

    Raises:
        CalibrationError: no kernel of that name works here, or one broke the device.
    """
    gathered = GatherAttention(device.torch_device, setting.dtype)
    if not device.is_cuda or name == gathered.name:
        return Choice(gathered)
    kernels = installed_kernels(setting)
    return named(kernels, name, device, setting) if name else quickest(kernels, device, setting)


def named(
    kernels: Iterable[PagedAttention | Missing], name: str, device: BenchDevice, setting: Setting
) -> Choice:
    """Return the kernel of a name, else the quickest of those with it in theirs; no other is tried.

    Raises:
        CalibrationError: there is none, it does not work here, or it broke the device.
    """
    known = list(kernels)
    wanted = [one for one in known if one.name == name] or [
        one for one in known if name in one.name
    ]
    if not wanted:
        here = ", ".join(one.name for one in known if not isinstance(one, Missing)) or "none"
        raise CalibrationError(f"there is no attention kernel {name!r} here; installed: {here}")
    found = quickest(wanted, device, setting)
    if all(one.time_s is None for one in found.tried):
        why = "; ".join(map(str, found.tried))
        raise CalibrationError(f"the attention kernel {name!r} does not work here: {why}")
    return found


def quickest(
    kernels: Iterable[PagedAttention | Missing], device: BenchDevice, setting: Setting
) -> Choice:
    """Return the kernel that takes least time; gathered blocks if none is right.

    Right is what agrees with gathered blocks for every batch of the trial. A kernel that raises is
    passed over: its package may be there without support for this GPU, this format or this block
    size, and says so only when it is called.

    Raises:
        CalibrationError: gathered blocks don't run, or the device does nothing any more.
    """
    gathered = GatherAttention(device.torch_device, setting.dtype)
    try:
        trial = Trial(setting)
        expected = [trial.run(gathered, batch) for batch in TRIALS]
    except RuntimeError as error:
        raise CalibrationError(
            f"{device.name} can't run attention of {setting.model.name}: {first_line(error)}"
        ) from error
    timed: list[tuple[float, int, PagedAttention]] = []
    tried: list[Tried] = []
    for kernel in kernels:
        if isinstance(kernel, Missing):
            tried.append(Tried(kernel.name, None, kernel.problem))
            continue
        found = _tried(kernel, trial, expected, device)
        tried.append(found)
        if found.time_s is not None:
            timed.append((found.time_s, len(timed), kernel))
    return Choice(min(timed)[2] if timed else gathered, tuple(tried))


def _tried(
    kernel: PagedAttention, trial: Trial, expected: Sequence[torch.Tensor], device: BenchDevice
) -> Tried:
    try:
        for batch, right in zip(TRIALS, expected, strict=True):
            problem = trial.difference(trial.run(kernel, batch), right)
            if problem:
                return Tried(kernel.name, None, f"wrong for {batch.name}: {problem}")
        if trial.setting.is_captured:
            with torch.inference_mode():
                GraphTimer(device)(trial.work(kernel, TIMED[0]), lambda: None)
        time_s = sum(_time_s(trial, kernel, batch, device) for batch in TIMED)
    except Exception as error:  # packages raise whatever they like for what they don't support
        _check_alive(device, kernel.name, error)
        return Tried(kernel.name, None, f"{type(error).__name__}: {first_line(error)}")
    return Tried(kernel.name, time_s)


def _time_s(trial: Trial, kernel: PagedAttention, batch: TrialBatch, device: BenchDevice) -> float:
    """Return the median time of a layer; the plan, which all layers share, is not in it."""
    with torch.inference_mode():
        work = trial.work(kernel, batch)
        work()
        calls = _CALLS_IN_A_ROW if device.is_cuda else 1
        return median(time_in_a_row(device, work, calls) for _ in range(_RUNS))


def _check_alive(device: BenchDevice, kernel: str, error: Exception) -> None:
    """A fault inside a kernel takes the whole process's device with it: nothing may go on."""
    try:
        torch.zeros(1, device=device.torch_device).add_(1).item()
    except RuntimeError:
        raise CalibrationError(
            f"the attention kernel {kernel} broke {device.name} for this process:"
            f" {first_line(error)}; uninstall its package, or name another kernel with --kernel"
        ) from error
