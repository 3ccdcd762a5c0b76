"""`headway calibrate` on the machine at hand."""

import math
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import typer

from calibration import CalibrationError, Profile
from calibration.bench.held_out import HeldOutStep
from calibration.bench.kernel_report import kernel_lines
from calibration.bench.reference_model import REFERENCE_NAME, load_bench_model
from calibration.bench.session import BenchProgress
from calibration.profile_writing import write_profile as write_profile  # noqa: PLC0414
from sim.cli.app import EXIT_INTERRUPTED
from sim.cli.interrupt import interrupt_flag
from sim.errors import StudyError
from sim.plots import house_style, save_figure
from sim.plots.validation import validation_figure
from sim.rng import Streams
from sim.scheduler.config import CacheConfig, SchedulerConfig
from sim.wording import number_of

if TYPE_CHECKING:
    from calibration.bench.bench_run import BenchOptions, BenchRun, Calibration
    from calibration.bench.decoder import Decoder

_TARGET = 0.05  # drawn as a band: what held-out steps should stay within
_MINUTE_S = 60.0
_US = 1e6
_HOST_TOKENS, _HOST_BATCH = 128, 32


@dataclass(frozen=True, slots=True)
class BenchCommand:
    """What to measure, for how long, and where results go."""

    model: str | None = None
    device: str = "cpu"
    num_threads: int = 1
    minutes: float = 5.0
    execution: str = "eager"
    max_num_batched_tokens: int = 512
    max_num_seqs: int = 32
    max_model_len: int = 1024
    block_size: int = 16
    tensor_parallel_size: int = 1
    kernel: str = ""
    resume: bool = False
    out: Path | None = None
    plot: Path | None = None


def calibrate_here(command: BenchCommand) -> int:
    """Measure, write the profile, print how good it is; returns the exit code."""
    if not 0 < command.minutes < math.inf:
        raise StudyError(f"--minutes is {command.minutes:g}; it must be above 0")
    if command.kernel and command.device == "cpu":
        raise StudyError("--kernel names an attention kernel of CUDA; on the CPU there is one")
    out = command.out or Path("profile.json")
    if not out.parent.is_dir():
        raise StudyError(f"{out}: its folder does not exist")
    calibration = run_bench(command, out.with_suffix(".samples.jsonl"))
    profile = calibration.profile
    is_whole = not calibration.is_partial and command.tensor_parallel_size == 1
    if is_whole and command.execution == "eager":
        profile = _with_host_time(command, profile)
    write_profile(profile, out)
    for line in fit_lines(profile):
        typer.echo(line)
    if command.plot is not None:
        draw_held_out(calibration.held_out, command.plot)
    typer.echo(f"profile: {out}")
    if calibration.is_partial:
        typer.echo("headway: interrupted; the profile is of what was measured", err=True)
        return EXIT_INTERRUPTED
    return 0


def run_bench(command: BenchCommand, samples_file: Path | None) -> "Calibration":
    """Run the microbenchmarks with progress on stderr; Ctrl-C ends them with what there is.

    Raises:
        CalibrationError: PyTorch is missing, or as `run_calibration`.
    """
    bench = InteractiveBench(command, samples_file)
    bench.measure()
    return bench.result()


class InteractiveBench:
    """A calibration that can be spread over time, with progress on stderr.

    Ctrl-C while it measures ends the measuring; what there is counts.

    Raises:
        CalibrationError: PyTorch is missing, or as `BenchRun`.
    """

    def __init__(self, command: BenchCommand, samples_file: Path | None = None) -> None:
        self._on_progress: Callable[[BenchProgress], bool] = lambda _: True
        self._run: BenchRun = require_torch().BenchRun(
            bench_options(command),
            rng=Streams(0).rng,
            samples_file=samples_file,
            resume=command.resume,
            on_progress=self._report,
        )
        for line in kernel_lines(self._run.kernels):  # now: measuring takes minutes
            typer.echo(line, err=True)

    @property
    def decoder(self) -> "Decoder":
        """The model that is measured."""
        return self._run.decoder

    def measure(self, share: float = 1.0) -> None:
        """Measure until this share of the time is spent in all."""
        with interrupt_flag() as is_interrupted, _progress() as show:

            def on_progress(progress: BenchProgress) -> bool:
                show(progress)
                return not is_interrupted()

            self._on_progress = on_progress
            self._run.measure(share)

    def _report(self, progress: BenchProgress) -> bool:
        return self._on_progress(progress)

    def result(self) -> "Calibration":
        """Return the profile of what was measured so far."""
        return self._run.result()


def _with_host_time(command: BenchCommand, profile: Profile) -> Profile:
    """The profile with the executor's host time of a step in its `fit`."""
    from sim.validate.executor_bench import ExecutorBench

    bench = ExecutorBench(
        load_bench_model(command.model or REFERENCE_NAME),
        profile,
        device=command.device,
        num_threads=command.num_threads,
        block_size=command.block_size,
        clock="cpu" if (command.device, command.num_threads) == ("cpu", 1) else "wall",
        rng=Streams(0).rng,
    )
    scheduler = SchedulerConfig(
        max_num_seqs=command.max_num_seqs,
        max_num_batched_tokens=command.max_num_batched_tokens,
        max_model_len=command.max_model_len,
    )
    host = bench.measure_host(scheduler, small_cache(scheduler, command.block_size)).host
    overhead = {"per_step_us": host.per_step_s * _US, "per_request_us": host.per_request_s * _US}
    rounded = {name: round(value, 2) for name, value in overhead.items()}
    return replace(profile, fit={**profile.fit, "host_overhead": rounded})


def small_cache(scheduler: SchedulerConfig, block_size: int) -> CacheConfig:
    """Room for what the host's time is measured with."""
    num_requests = min(scheduler.max_num_seqs, _HOST_BATCH)
    return CacheConfig(_HOST_TOKENS * num_requests // block_size + num_requests + 1, block_size)


def require_torch() -> Any:
    """Return the module that runs microbenchmarks.

    Raises:
        CalibrationError: PyTorch is not installed.
    """
    try:
        from calibration.bench import bench_run
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise CalibrationError(
            "measuring needs PyTorch, which is not installed: pip install 'headway[bench]'"
        ) from error
    return bench_run


def bench_options(command: BenchCommand) -> "BenchOptions":
    """The command's options as the benchmarks take them."""
    options: BenchOptions = require_torch().BenchOptions(
        model=load_bench_model(command.model or REFERENCE_NAME),
        tensor_parallel_size=command.tensor_parallel_size,
        device=command.device,
        num_threads=command.num_threads,
        execution=command.execution,
        budget_s=command.minutes * _MINUTE_S,
        max_num_batched_tokens=command.max_num_batched_tokens,
        max_num_seqs=command.max_num_seqs,
        max_model_len=command.max_model_len,
        block_size=command.block_size,
        kernel=command.kernel,
        git_commit=_git_commit(),
        date=datetime.now(UTC).date().isoformat(),
    )
    return options


def _git_commit() -> str:
    """The commit of the checkout that measures; empty outside one."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return found.stdout.strip()


def fit_lines(profile: Profile) -> list[str]:
    """How good a measured profile is, a line each."""
    fit, measured = profile.fit, profile.provenance
    how = fit["measuring"]
    lines = [
        f"{measured.model} {measured.weight_dtype} on {measured.device}, {measured.execution}",
        f"kernels: {measured.kernel_backend}; {measured.notes}",
        f"{number_of(how['points'], 'point')}, {number_of(how['samples'], 'sample')},"
        f" {how['disturbed_samples']} disturbed;"
        f" noise of a sample {_share(how['noise_p50'])} (p90 {_share(how['noise_p90'])}), lost to"
        f" interruptions {how['lost_share']:.1%}, drift {how['median_drift']:+.1%};"
        f" {number_of(how['num_unsettled'], 'point')} never settled",
    ]
    for name in ("dense", "logits", "prefill_attention", "decode_attention"):
        errors = fit[name]
        if errors["num_points"]:
            lines.append(
                f"{name}: off its grid {number_of(errors['num_points'], 'point')}, error mean"
                f" {errors['mean']:.1%}, p90 {errors['p90']:.1%}, bias {errors['bias']:+.1%}"
                " (before rows and columns were added where one was missed)"
            )
    lines += kernel_lines(fit.get("attention_kernels"))
    lines += _skew_lines(profile)
    lines += [f"{name}: {ratio:.3f}" for name, ratio in fit["checks"].items()]
    group = fit.get("all_reduce")
    if group is not None:
        sizes, times = group["message_bytes"], group["time_us"]
        lines.append(
            f"all-reduce of {group['num_ranks']} by {group['backend']}: {times[0]:.1f} us for"
            f" {sizes[0]:,} bytes, {times[-1]:.1f} us for {sizes[-1]:,}; held-out steps are of one"
            " share, without it"
        )
    host = fit.get("host_overhead")
    if host is not None:
        lines.append(
            f"host time of a step: {host['per_step_us']:.0f} us and {host['per_request_us']:.1f} us"
            " a request (of the executor, not of a serving engine)"
        )
    return lines + _held_out_lines(fit.get("held_out"))


def _skew_lines(profile: Profile) -> list[str]:
    """What contexts of unlike length cost, and how well the correction catches it."""
    lines = []
    for name, what in (
        ("decode_skew", "unlike contexts"),
        ("decode_skew_beside_chunks", "unlike contexts beside chunks"),
    ):
        table, errors = getattr(profile, name), profile.fit[name]
        if table is not None and errors["num_points"]:
            shares = ", ".join(
                f"{share:.3f} at {count:g}"
                for count, share in zip(table.axis, table.share, strict=True)
            )
            lines.append(
                f"{what}: share of the longest {shares} decodes; attention off by"
                f" {errors['uncorrected_bias']:+.1%} without, {errors['bias']:+.1%} with it"
            )
    return lines


def _share(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.1%}"


def _held_out_lines(held_out: Any) -> list[str]:
    if held_out is None:
        return ["no held-out step was timed"]
    rows = {"all": held_out["all"], **held_out["by_region"], **held_out["by_skew"]}
    lines = [f"{'held-out whole steps':40}{'steps':>6}{'MAPE':>8}{'p50':>8}{'p90':>8}{'bias':>8}"]
    return lines + [
        f"{name:40}{row['num_points']:>6}{row['mean']:>8.1%}{row['p50']:>8.1%}"
        f"{row['p90']:>8.1%}{row['bias']:>+8.1%}"
        for name, row in rows.items()
    ]


def draw_held_out(steps: Sequence[HeldOutStep], file: Path) -> None:
    """Scatter of held-out steps by region."""
    measured = 1e3 * np.array([step.measured_s for step in steps])
    predicted = 1e3 * np.array([step.predicted_s for step in steps])
    regions = [step.region for step in steps]
    with house_style():
        panel = ("held-out whole steps (ms)", measured, predicted, regions)
        figure = validation_figure([panel], _TARGET)
        save_figure(figure, file)


@contextmanager
def _progress() -> Iterator[Callable[[BenchProgress], None]]:
    """A line on stderr, redrawn in place; nothing where that is no terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return

    def show(progress: BenchProgress) -> None:
        typer.echo(
            f"\r{progress.num_settled} of {number_of(progress.num_points, 'point')} settled,"
            f" {progress.elapsed_s:.0f} s, about {progress.remaining_s:.0f} s left   ",
            err=True,
            nl=False,
        )

    yield show
    typer.echo("", err=True)
