"""What is said of a device, and stopwatches, as far as a machine without a GPU has them."""

import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install -e '.[bench]'")

from calibration.bench.device import first_line, open_device  # noqa: E402
from calibration.bench.gpu_state import GpuState, ask_nvidia_smi, parse_state  # noqa: E402
from calibration.bench.timing import make_timer, time_in_a_row, time_wall  # noqa: E402

ANSWER = "580.95.05, 1980, 1980, 700.00, 41\n"


def install_nvidia_smi(folder: Path, script: str) -> None:
    """A program of that name first on the PATH."""
    program = folder / "nvidia-smi"
    program.write_text(f"#!{sys.executable}\nimport sys, time\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


def test_answers_of_nvidia_smi_are_read() -> None:
    """As its manual documents: csv, noheader, nounits; [N/A] for what a GPU does not tell."""
    state = parse_state(ANSWER)
    assert state == GpuState("580.95.05", "1980", "1980", "700.00", "41")
    assert state.clocks("under load") == (
        "SM clock 1980 of at most 1980 MHz under load, power limit 700.00 W, 41 degrees Celsius"
    )
    assert parse_state("580.95.05, 1410, [N/A], [Not Supported], 41").power_limit_w == "unknown"
    for other in ("", "No devices were found\n", "Field x is not a valid field, 3"):
        assert parse_state(other) == GpuState()


def test_a_gpu_is_busy_until_nvidia_smi_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    install_nvidia_smi(
        tmp_path,
        "assert '--id=GPU-1' in sys.argv and any('clocks.sm' in a for a in sys.argv)\n"
        f"time.sleep(0.2); print({ANSWER.strip()!r})",
    )
    calls: list[float] = []

    def work() -> None:
        calls.append(time.monotonic())
        time.sleep(0.01)

    assert ask_nvidia_smi("GPU-1", work).driver == "580.95.05"
    assert calls[-1] - calls[0] > 0.1
    assert ask_nvidia_smi("GPU-1").clock_mhz == "1980"
    assert ask_nvidia_smi("GPU-2") == GpuState()  # it fails: its code is not 0


def test_without_nvidia_smi_the_driver_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert ask_nvidia_smi("GPU-1") == GpuState()
    assert "no answer from nvidia-smi" in GpuState().clocks("under load")


def test_an_error_is_told_by_its_first_line() -> None:
    error = RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be reported later")
    assert first_line(error) == "CUDA error: out of memory"
    assert first_line(RuntimeError()) == "RuntimeError"


@pytest.mark.parametrize("threads", [1, 2])
def test_what_runs_before_is_not_timed_and_comes_right_before(threads: int) -> None:
    order: list[str] = []

    def before() -> None:
        order.append("before")
        sum(range(2_000_000))

    try:
        timer = make_timer(open_device("cpu", threads), "eager")
        sample = timer(lambda: order.append("work"), before)
    finally:
        open_device("cpu", 1)
    assert order == ["before", "work"]
    whole = time_wall(before, lambda: None)
    assert sample.time_s < 0.1 * whole.time_s


def test_calls_in_a_row_are_told_by_the_call() -> None:
    calls: list[int] = []

    def work() -> None:
        calls.append(1)
        time.sleep(0.01)

    time_s = time_in_a_row(open_device("cpu"), work, 5, align=lambda: time.sleep(0.2))
    assert len(calls) == 5
    assert 0.01 <= time_s < 0.05


def test_memory_and_clocks_of_the_cpu() -> None:
    device = open_device("cpu")
    device.clear()
    assert device.free_bytes() > 2**20
    assert device.clocks_now() == device.clocks


PAGES_OF_A_STEP = """
import resource, sys, torch
from calibration.bench.device import open_device

if sys.argv[1] == "opened":
    open_device("cpu")

def step():
    return sum(x.sum() for x in [torch.ones(1 << 21) for _ in range(6)])

def pages():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

for _ in range(5):
    step()
before = pages()
for _ in range(20):
    step()
print((pages() - before) / 20)
"""


def pages_of_a_step(how: str) -> float:
    # A heap that gives everything back, as it may by itself, after the one history or the other.
    strict = {"MALLOC_TRIM_THRESHOLD_": "131072", "MALLOC_MMAP_THRESHOLD_": "131072"}
    arguments = [sys.executable, "-c", PAGES_OF_A_STEP, how]
    done = subprocess.run(
        arguments, capture_output=True, text=True, check=True, env={**os.environ, **strict}
    )
    return float(done.stdout)


def test_the_memory_of_a_step_is_there_for_the_next() -> None:
    """Six tensors of 8 MiB: 12,288 pages of 4 KiB, which come anew where the heap gives them back.

    A block that does not fit the hole it left comes anew even so, now and then.
    """
    if not open_device("cpu").keeps_freed_memory:
        pytest.skip("this C library's heap can't be told to keep memory")
    assert pages_of_a_step("opened") < pages_of_a_step("not opened") / 5
