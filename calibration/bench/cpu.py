"""What Linux says of the CPU."""

import platform
from pathlib import Path


def cpu_name() -> str:
    """Return the CPU's own name, as Linux states it, else the architecture."""
    return _entry("model name") or platform.processor() or platform.machine()


def cpu_clock() -> str:
    """Return the clock rate now, empty if it is not stated."""
    clock = _entry("cpu MHz")
    return f"{clock} MHz at start" if clock else ""


def _entry(name: str) -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")
