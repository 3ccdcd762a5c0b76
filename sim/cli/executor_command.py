"""`headway validate executor`."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import typer

import traces
from calibration import Profile, read_profile
from calibration.bench.pace import scaled
from calibration.bench.reference_model import REFERENCE_NAME, load_bench_model
from sim.cli.bench_command import (
    BenchCommand,
    InteractiveBench,
    fit_lines,
    require_torch,
    small_cache,
    write_profile,
)
from sim.engine import HostOverhead
from sim.errors import StudyError
from sim.plots import house_style, save_figure
from sim.plots.validation import cdf_pairs_figure, validation_figure
from sim.rng import Streams
from sim.scheduler.config import CacheConfig, SchedulerConfig
from sim.validate.executor_study import LoadComparison
from sim.validate.load_study import Load, Machine
from sim.wording import number_of

if TYPE_CHECKING:
    from calibration.bench.decoder import Decoder
    from sim.executor.executor import ExecutedRun
    from sim.validate.executor_bench import ExecutorBench

CLOCKS = ("wall", "cpu")
_BAND = 0.05
_FIRST_SHARE = 0.5  # of the time for measuring, before the loads are known
_US = 1e6


@dataclass(frozen=True, slots=True)
class ExecutorCommand:
    """What to replay, on what, how often, and where results go."""

    profile: Path | None = None
    trace: Path | None = None
    num_requests: int = 100
    repeats: int = 3
    clock: str = "wall"
    model: str | None = None
    device: str = "cpu"
    num_threads: int = 1
    minutes: float = 5.0
    max_num_batched_tokens: int = 512
    max_num_seqs: int = 32
    max_model_len: int = 1024
    block_size: int = 16
    num_gpu_blocks: int | None = None
    seed: int = 0
    out: Path | None = None


def validate_executor(command: ExecutorCommand) -> int:
    """Run every load, print its errors, draw it; returns the exit code.

    Raises:
        StudyError: an unknown clock, or one that does not fit the device.
        CalibrationError: PyTorch is missing, a profile of another machine or model, memory.
        TraceError: the trace can't be read.
    """
    _check(command)
    require_torch()
    from sim.validate import executor_bench

    if command.out is not None:
        command.out.mkdir(parents=True, exist_ok=True)
    measuring = _Measuring(command)
    is_in_turns = command.clock == "wall" and command.profile is None
    measuring.go_on(_FIRST_SHARE if is_in_turns else 1.0)
    profile = measuring.profile()
    bench = executor_bench.ExecutorBench(
        load_bench_model(command.model or REFERENCE_NAME),
        profile,
        device=command.device,
        num_threads=command.num_threads,
        block_size=command.block_size,
        clock=command.clock,
        rng=Streams(command.seed).rng,
        decoder=measuring.decoder(),
    )
    scheduler = _scheduler(command)
    machine = bench.measure_host(scheduler, small_cache(scheduler, command.block_size))
    typer.echo(f"host time of a step: {_described(machine.host)}; clock: {command.clock}")
    loads = (
        bench.loads(machine, scheduler, command.num_requests)
        if command.trace is None
        else [_replay(command, scheduler)]
    )
    if is_in_turns:
        _replay_in_turns(command, measuring, bench, machine, loads)
        return 0
    measuring.report()
    if command.clock == "cpu":
        clipped = float(profile.fit.get("measuring", {}).get("clipped_share", 0.0))
        typer.echo(f"step times are simulated {clipped:+.1%} longer: slow samples that are clipped")
        machine = replace(machine, profile=scaled(profile, 1.0 + clipped))
    for load in loads:
        if command.clock == "wall":
            _report(bench.compare(machine, load, command.repeats), command)
            continue
        comparison, paces = bench.compare_at_pace(machine, load, command.repeats)
        _report(comparison, command)
        low, high = np.percentile(paces, (5, 95))
        typer.echo(
            f"the clock followed the machine's pace: work took {np.mean(paces):.3f} times as long"
            f" as in the profile, {low:.3f} to {high:.3f} for 90 % of the time"
        )
    return 0


def _replay_in_turns(
    command: ExecutorCommand,
    measuring: "_Measuring",
    bench: "ExecutorBench",
    machine: Machine,
    loads: Sequence[Load],
) -> None:
    """Measure and replay in turns on the wall: a slow spell of the machine falls on both."""
    from sim.validate.executor_study import compare

    runs: list[list[ExecutedRun]] = [[] for _ in loads]
    hosts = [machine.host]
    turns = command.repeats * len(loads)
    scheduler = _scheduler(command)
    for turn in range(turns):
        own = turn % len(loads)
        runs[own].append(bench.run(loads[own]))
        measuring.go_on(_FIRST_SHARE + (1.0 - _FIRST_SHARE) * (turn + 1) / turns)
        hosts.append(bench.host_overhead(scheduler, small_cache(scheduler, command.block_size)))
    profile = measuring.profile()
    measuring.report()
    lost = float(profile.fit["measuring"]["lost_share"])
    typer.echo(f"step times are simulated {lost:+.1%} longer: so much passes on the wall beyond")
    profile = scaled(profile, 1.0 + lost)
    host = HostOverhead(
        float(np.mean([host.per_step_s for host in hosts])),
        float(np.mean([host.per_request_s for host in hosts])),
    )
    typer.echo(
        f"host time of a step, mean over {number_of(len(hosts), 'time')}: {_described(host)}"
    )
    now = replace(machine, profile=profile, host=host)
    for load, own_runs in zip(loads, runs, strict=True):
        _report(compare(now, load, own_runs), command)


def _described(host: HostOverhead) -> str:
    return f"{host.per_step_s * _US:.0f} us and {host.per_request_s * _US:.1f} us a request"


def _report(comparison: LoadComparison, command: ExecutorCommand) -> None:
    from sim.validate.executor_bench import comparison_lines

    for line in comparison_lines(comparison, command.repeats):
        typer.echo(line)
    if command.out is not None:
        _save(comparison, command.out)


def _check(command: ExecutorCommand) -> None:
    if command.clock not in CLOCKS:
        raise StudyError(f"--clock is {command.clock!r}; it must be wall or cpu")
    if command.clock == "cpu" and (command.device != "cpu" or command.num_threads != 1):
        raise StudyError("--clock cpu counts one thread of the CPU: it needs --device cpu alone")


class _Measuring:
    """The profile of this machine: as given, or measured bit by bit."""

    def __init__(self, command: ExecutorCommand) -> None:
        self._command = command
        self._given = None if command.profile is None else read_profile(command.profile)
        self._bench = None if command.profile is not None else InteractiveBench(_bench(command))

    def go_on(self, share: float) -> None:
        """Measure until this share of the time is spent in all."""
        if self._bench is not None:
            self._bench.measure(share)

    def profile(self) -> Profile:
        """What is known so far."""
        if self._given is not None:
            return self._given
        assert self._bench is not None
        return self._bench.result().profile

    def decoder(self) -> "Decoder | None":
        """The model that is measured, None if a profile was given."""
        return None if self._bench is None else self._bench.decoder

    def report(self) -> None:
        """Print and keep what was measured."""
        if self._bench is None:
            return
        profile = self.profile()
        for line in fit_lines(profile):
            typer.echo(line)
        if self._command.out is not None:
            write_profile(profile, self._command.out / "profile.json")


def _bench(command: ExecutorCommand) -> BenchCommand:
    return BenchCommand(
        model=command.model,
        device=command.device,
        num_threads=command.num_threads,
        minutes=command.minutes,
        max_num_batched_tokens=command.max_num_batched_tokens,
        max_num_seqs=command.max_num_seqs,
        max_model_len=command.max_model_len,
        block_size=command.block_size,
    )


def _scheduler(command: ExecutorCommand) -> SchedulerConfig:
    return SchedulerConfig(
        max_num_seqs=command.max_num_seqs,
        max_num_batched_tokens=command.max_num_batched_tokens,
        max_model_len=command.max_model_len,
    )


def _ample(command: ExecutorCommand) -> CacheConfig:
    num_blocks = command.max_num_seqs * command.max_model_len // command.block_size + 1
    return CacheConfig(num_blocks, command.block_size)


def _replay(command: ExecutorCommand, scheduler: SchedulerConfig) -> Load:
    trace = traces.load(str(command.trace))
    cache = _ample(command)
    if command.num_gpu_blocks is not None:
        cache = replace(cache, num_gpu_blocks=command.num_gpu_blocks)
    return Load(trace.source.name, trace, scheduler, cache)


def _save(comparison: LoadComparison, folder: Path) -> None:
    name = comparison.load.name.partition(",")[0]
    stem = name.replace("/", "-").replace(" ", "-")
    _write_steps(comparison, folder / f"{stem}-steps.csv")
    steps = comparison.steps
    with house_style():
        panel = ("steps (ms)", 1e3 * steps.measured_s, 1e3 * steps.predicted_s, steps.kinds)
        save_figure(validation_figure([panel], _BAND), folder / f"{stem}-steps.png")
        panels = [
            (f"{metric} (s)", comparison.measured[metric], comparison.predicted[metric])
            for metric in comparison.measured
        ]
        save_figure(cdf_pairs_figure(panels), folder / f"{stem}-cdf.png")


def _write_steps(comparison: LoadComparison, file: Path) -> None:
    steps = comparison.steps
    columns: Sequence[object] = (steps.kinds, steps.measured_s, steps.predicted_s)
    with file.open("w", encoding="utf-8", newline="") as lines:
        writer = csv.writer(lines)
        writer.writerow(("kind", "measured_s", "predicted_s"))
        writer.writerows(np.array(columns, dtype=object).T.tolist())
