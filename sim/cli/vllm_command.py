"""`headway validate vllm`."""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import typer

import traces
from calibration.bench.reference_model import REFERENCE_MODEL
from sim.cli.bench_command import write_profile
from sim.errors import StudyError
from sim.plots import house_style, save_figure
from sim.plots.validation import cdf_pairs_figure, validation_figure
from sim.rng import Streams
from sim.validate.engine_log import EngineRun
from sim.validate.load_study import Load, Machine
from sim.validate.vllm_lines import comparison_lines, machine_lines
from sim.validate.vllm_server import EngineSettings, VllmServer
from sim.validate.vllm_study import (
    VllmComparison,
    at_load,
    compare_runs,
    machine_of,
    random_burst,
    shortened,
    workload_of,
)
from traces import Trace

PYTHON_VARIABLE = "HEADWAY_VLLM_PYTHON"
_BAND = 0.1
_FIRST_SHARE = 0.4  # of the time for measuring, before the loads are known


@dataclass(frozen=True, slots=True)
class VllmCommand:
    """What to replay on which vLLM, how often, and where results go."""

    traces: tuple[Path, ...]
    python: Path | None = None
    num_requests: int = 100
    shorten: float = 8.0
    load: float = 0.6
    repeats: int = 3
    minutes: float = 2.0
    settings: EngineSettings = field(default_factory=EngineSettings)
    seed: int = 0
    out: Path | None = None


def validate_vllm(command: VllmCommand) -> int:
    """Measure, replay, compare, draw; returns the exit code.

    Raises:
        StudyError: no such Python, no vLLM in it, or an engine that ended early.
        CalibrationError: too little time for a profile.
        TraceError: a trace can't be read.
    """
    python = _python(command)
    recorded = [(file.stem, _recorded(file, command)) for file in command.traces]
    if command.out is not None:
        command.out.mkdir(parents=True, exist_ok=True)
    log = None if command.out is None else command.out / "engine.log"
    with VllmServer(python, REFERENCE_MODEL, command.settings, log) as server:
        session = _Session(server, command)
        machine, runs = session.run(recorded)
        for line in machine_lines(machine, server.version, server.num_cores):
            typer.echo(line)
    if command.out is not None:
        write_profile(machine.profile, command.out / "profile.json")
    for load, own in runs:
        comparison = compare_runs(machine, load, own)
        for line in comparison_lines(comparison, len(own)):
            typer.echo(line)
        if command.out is not None:
            _draw(comparison, command.out)
    return 0


class _Session:
    """One engine. Measuring and replaying take turns: a slow spell of the machine falls on both."""

    def __init__(self, server: VllmServer, command: VllmCommand) -> None:
        self._server, self._command = server, command
        self._rng = Streams(command.seed).rng("bursts")
        self._bursts: list[EngineRun] = []
        server.serve([(0.0, command.settings.max_model_len // 2, 8)] * 4)  # warms up

    def run(
        self, recorded: Sequence[tuple[str, Trace]]
    ) -> tuple[Machine, list[tuple[Load, list[EngineRun]]]]:
        """Return the machine, and each load with its runs."""
        command, server = self._command, self._server
        budget_s = 60.0 * command.minutes
        self._measure(_FIRST_SHARE * budget_s)
        first = self._machine()
        loads = [
            at_load(first, Load(name, trace, server.scheduler, server.cache), command.load)
            for name, trace in recorded
        ]
        replayed: list[tuple[Load, list[EngineRun]]] = [(load, []) for load in loads]
        turns = command.repeats * len(loads)
        for _ in range(command.repeats):
            for load, runs in replayed:
                runs.append(server.serve(workload_of(load.trace)))
                self._measure((1.0 - _FIRST_SHARE) * budget_s / turns)
        return self._machine(), replayed

    def _measure(self, budget_s: float) -> None:
        end_s = time.perf_counter() + budget_s
        while time.perf_counter() < end_s:
            burst = random_burst(self._rng, self._command.settings)
            self._bursts.append(self._server.serve(burst))

    def _machine(self) -> Machine:
        today = datetime.now(UTC).date().isoformat()
        return machine_of(self._server, REFERENCE_MODEL, self._bursts, today)


def _python(command: VllmCommand) -> Path:
    named = command.python or os.environ.get(PYTHON_VARIABLE)
    if named is None:
        raise StudyError(
            f"no Python with vLLM is named: give --python, or set {PYTHON_VARIABLE} to its path"
        )
    python = Path(named)
    if not python.is_file():
        raise StudyError(f"{python}: no such Python; it must be one that can import vLLM")
    return python


def _recorded(file: Path, command: VllmCommand) -> Trace:
    trace = traces.load(str(file))
    first = traces.limit(trace, min(command.num_requests, len(trace)))
    return shortened(first, command.shorten, command.settings)


def _draw(comparison: VllmComparison, folder: Path) -> None:
    stem = comparison.load.name.partition(",")[0].replace("/", "-").replace(" ", "-")
    steps = comparison.steps
    panel = ("steps (ms)", 1e3 * steps.measured_s, 1e3 * steps.predicted_s, steps.kinds)
    panels = [
        (f"{metric} (s)", comparison.measured[metric], comparison.predicted[metric])
        for metric in comparison.measured
    ]
    with house_style():
        save_figure(validation_figure([panel], _BAND), folder / f"{stem}-steps.png")
        save_figure(cdf_pairs_figure(panels), folder / f"{stem}-cdf.png")
