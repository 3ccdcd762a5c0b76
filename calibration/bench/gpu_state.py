"""What NVIDIA's driver says of a GPU: its version, the clock under load, the power limit.

Asked of `nvidia-smi`, which comes with the driver; a container without it gives "unknown". The GPU
is named by its UUID: its number is another one where CUDA_VISIBLE_DEVICES hides some.
"""

import subprocess
import time
from collections.abc import Callable
from typing import Any, NamedTuple

_FIELDS = ("driver_version", "clocks.sm", "clocks.max.sm", "power.limit", "temperature.gpu")
_TIMEOUT_S = 20.0
_UNKNOWN = "unknown"


class GpuState(NamedTuple):
    """Answers as nvidia-smi words them: MHz, W, degrees Celsius; "unknown" if there is none."""

    driver: str = _UNKNOWN
    clock_mhz: str = _UNKNOWN
    max_clock_mhz: str = _UNKNOWN
    power_limit_w: str = _UNKNOWN
    temperature_c: str = _UNKNOWN

    def clocks(self, when: str) -> str:
        """Return a line for a profile's notes."""
        if self == GpuState():
            return f"clocks unknown {when}: no answer from nvidia-smi"
        return (
            f"SM clock {self.clock_mhz} of at most {self.max_clock_mhz} MHz {when}, power limit"
            f" {self.power_limit_w} W, {self.temperature_c} degrees Celsius"
        )


def ask_nvidia_smi(uuid: str, work: Callable[[], Any] | None = None) -> GpuState:
    """Return the state of a GPU; `work` is repeated until the answer is there, so that it is busy.

    An idle GPU lowers its clock, and that one says nothing of the clock of a measurement.
    """
    command = [
        "nvidia-smi",
        f"--id={uuid}",
        f"--query-gpu={','.join(_FIELDS)}",
        "--format=csv,noheader,nounits",
    ]
    try:
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as asked:
            try:
                out = _answer(asked, work)
            finally:
                asked.kill()
    except (OSError, subprocess.TimeoutExpired):
        return GpuState()
    return parse_state(out) if asked.returncode == 0 else GpuState()


def parse_state(out: str) -> GpuState:
    """Return the state from a line of comma-separated answers, one a field."""
    lines = out.strip().splitlines()
    cells = [cell.strip() for cell in lines[0].split(",")] if lines else []
    if len(cells) != len(_FIELDS):
        return GpuState()
    return GpuState(*(_UNKNOWN if not cell or cell.startswith("[") else cell for cell in cells))


def _answer(asked: "subprocess.Popen[str]", work: Callable[[], Any] | None) -> str:
    until_s = time.monotonic() + _TIMEOUT_S
    # Its answer is one line, which the pipe holds: nobody need read it meanwhile.
    while work is not None and asked.poll() is None and time.monotonic() < until_s:
        work()
    return asked.communicate(timeout=max(until_s - time.monotonic(), 0.1))[0]
