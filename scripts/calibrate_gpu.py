"""Calibrate a GPU in one go: CUDA-graph and eager profiles, held-out steps, a report.

    python scripts/calibrate_gpu.py OUT [--model llama-3.1-8b] [--minutes 3] [--limit-minutes 7.5]

Needs PyTorch and numpy, nothing else of Headway's dependencies, so that it runs on a bare machine
from a copy of the checkout. Each execution is a process of its own: a fault of the GPU in one, or
its memory, does not touch the other. The limit holds for all together, from start to end: whoever
comes to the end of his part of it writes the profile of what was measured, as do Ctrl-C, a kill, or
a GPU that fails; --resume goes on with the samples. With --device cpu it runs, eager only, where
there is no GPU.
"""

import argparse
import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(CHECKOUT))

from calibration.bench.bench_run import BenchOptions, BenchRun, Calibration  # noqa: E402
from calibration.bench.device import open_device, torch_dtype  # noqa: E402
from calibration.bench.kernel_choice import choose_attention  # noqa: E402
from calibration.bench.kernel_report import kernel_lines  # noqa: E402
from calibration.bench.reference_model import load_bench_model  # noqa: E402
from calibration.bench.table_kernels import Setting  # noqa: E402
from calibration.errors import CalibrationError  # noqa: E402
from calibration.model_spec import ModelSpec  # noqa: E402
from calibration.profile_writing import write_profile  # noqa: E402
from sim.rng import Streams  # noqa: E402

EXECUTIONS = ("cuda-graph", "eager")
BLOCK_SIZES = (16, 256)  # vLLM's; and what FlashAttention 2 without vLLM takes, torch's too
WRITING_S, ENDING_S = 15.0, 20.0
EXIT_INTERRUPTED = 130
STARTED_S = time.monotonic()


def main() -> int:
    """Run every execution; one that fails does not keep the others from being saved."""
    arguments = _arguments()
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.execution:
        return _one(arguments)
    failed = False
    until_s = STARTED_S + 60 * arguments.limit_minutes
    for number, execution in enumerate(EXECUTIONS):
        own_s = part_s(until_s - time.monotonic(), len(EXECUTIONS) - number)
        more = ["--execution", execution, "--limit-minutes", f"{own_s / 60:.3f}"]
        command = [sys.executable, str(Path(__file__).resolve()), *sys.argv[1:], *more]
        try:
            failed |= run_for(command, own_s + WRITING_S) != 0
        except KeyboardInterrupt:
            return EXIT_INTERRUPTED
    return int(failed)


def part_s(left_s: float, num_left: int) -> float:
    """Seconds of the next of some executions, with time for each to write its profile."""
    return max(left_s / num_left - WRITING_S, 1.0)


def run_for(command: Sequence[str], limit_s: float) -> int:
    """Run a command; ask it to end after the limit, or if this process is; returns its code."""

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    with subprocess.Popen(command) as child:
        try:
            return child.wait(limit_s)
        except subprocess.TimeoutExpired:
            print(f"stopped after {limit_s:.0f} s: {' '.join(command)}", file=sys.stderr)
        finally:
            signal.signal(signal.SIGTERM, before)
            _end(child)
    return child.returncode


def _end(child: "subprocess.Popen[bytes]") -> None:
    """Ask a process to write what it has and end; kill it if it does not."""
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(ENDING_S)
        except subprocess.TimeoutExpired:
            child.kill()


def _one(arguments: argparse.Namespace) -> int:
    go_on = _Stop(60 * arguments.limit_minutes)
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(number, go_on.ask) for number in numbers]
    try:
        return int(_calibrate(arguments, go_on))
    except CalibrationError as error:
        print(f"{arguments.execution}: {error}", file=sys.stderr)
        return 1
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


class _Stop:
    """Says when measuring is to end: after the limit, or once this process was asked to."""

    def __init__(self, limit_s: float) -> None:
        self._until_s = STARTED_S + limit_s
        self._is_asked = False

    def ask(self, number: int, frame: object) -> None:
        """Note that this process was asked to end."""
        self._is_asked = True

    def __call__(self, _: object) -> bool:
        """Whether to go on."""
        return not self._is_asked and time.monotonic() < self._until_s


def _calibrate(arguments: argparse.Namespace, go_on: _Stop) -> bool:
    """Write the profile of what is measured; returns whether the device failed on the way."""
    model = load_bench_model(arguments.model)
    options = BenchOptions(
        model=model,
        device=arguments.device,
        execution=arguments.execution,
        budget_s=arguments.minutes * 60,
        max_num_batched_tokens=arguments.max_num_batched_tokens,
        max_num_seqs=arguments.max_num_seqs,
        max_model_len=arguments.max_model_len,
        block_size=arguments.block_size or _block_size(arguments, model),
        git_commit=_git_commit(),
        date=datetime.now(UTC).date().isoformat(),
    )
    started_s = time.perf_counter()
    stem = arguments.out / f"{arguments.model.replace('/', '-')}-{arguments.execution}"
    samples = stem.with_name(stem.name + ".samples.jsonl")
    run = BenchRun(
        options,
        rng=Streams(0).rng,
        samples_file=samples,
        resume=arguments.resume and samples.is_file(),
        on_progress=go_on,
    )
    has_failed = False
    try:
        run.measure()
    except CalibrationError as error:
        print(f"{arguments.execution}: {error}", file=sys.stderr)
        has_failed = True
    calibration = run.result()
    profile = stem.with_name(stem.name + ".json")
    write_profile(calibration.profile, profile)
    _report(calibration, profile, options, time.perf_counter() - started_s)
    return has_failed


def _block_size(arguments: argparse.Namespace, model: ModelSpec) -> int:
    """The first size of blocks that a paged kernel takes here, vLLM's if none does."""
    opened = open_device(arguments.device)
    dtype, is_captured = torch_dtype(model.dtype), arguments.execution == "cuda-graph"
    for size in BLOCK_SIZES:
        setting = Setting(opened.torch_device, model, dtype, size, is_captured)
        choice = choose_attention(opened, setting)
        if not opened.is_cuda or "gathered" not in choice.kernel.name:
            return size
        print(f"no paged kernel takes blocks of {size} tokens here", file=sys.stderr)
    return BLOCK_SIZES[0]


def _report(calibration: Calibration, file: Path, options: BenchOptions, elapsed_s: float) -> None:
    measured, fit = calibration.profile.provenance, calibration.profile.fit
    print(f"{file}: {measured.model} on {measured.device}, {measured.execution}, {elapsed_s:.0f} s")
    print(
        f"{measured.kernel_backend}, blocks of {options.block_size}; driver {measured.driver},"
        f" torch {measured.torch}; {measured.notes}"
    )
    if calibration.is_partial:
        print("stopped before its time was up: the profile is of what was measured")
    for line in kernel_lines(fit.get("attention_kernels")):
        print(line)
    for part in ("measuring", "checks", "decode_skew", "decode_skew_beside_chunks", "held_out"):
        print(f"{part}: {json.dumps(fit.get(part), indent=1)}")
    for step in calibration.held_out:
        print(
            f"{step.region:36}{step.measured_s * 1e3:9.3f} ms{step.predicted_s * 1e3:9.3f} ms"
            f"{step.error:+8.1%}"
        )


def _git_commit() -> str:
    command = ["git", "-C", str(CHECKOUT), "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("out", type=Path, help="folder for profiles, samples")
    parser.add_argument("--model", default="llama-3.1-8b")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--execution", choices=EXECUTIONS, help="one alone; default: all")
    parser.add_argument("--minutes", type=float, default=3.0, help="most of each execution")
    parser.add_argument("--limit-minutes", type=float, default=7.5, help="of all, with the start")
    parser.add_argument("--max-num-batched-tokens", type=int, default=8192)
    parser.add_argument("--max-num-seqs", type=int, default=256)
    parser.add_argument("--max-model-len", type=int, default=8192)
    parser.add_argument("--block-size", type=int, help="default: 16, or what a kernel takes")
    parser.add_argument("--resume", action="store_true")
    arguments = parser.parse_args()
    if arguments.device == "cpu":
        arguments.execution = arguments.execution or "eager"
    return arguments


if __name__ == "__main__":
    sys.exit(main())
