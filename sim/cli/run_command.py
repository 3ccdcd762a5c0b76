"""`headway run`: study to run folder, table and exit code."""

import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from sim import result as run_folder
from sim.cli.app import EXIT_INTERRUPTED
from sim.cli.intervals_table import add_intervals, print_intervals
from sim.cli.progress import watched_run
from sim.config import Override, ResolvedStudy, load_study, parse_override, resolve_study
from sim.config.paths import anchored
from sim.config.yaml_source import parse_yaml
from sim.errors import StudyError
from sim.folder_sink import FolderSink
from sim.intervals import profile_with_errors
from sim.rows import num_rows
from sim.run_result import RunResult
from sim.simulation import simulate
from sim.studies import sample_study_text
from sim.wording import number_of

RUNS = Path("runs")
_SAMPLE = "the shipped sample study"
_TABLE_WIDTH = 110  # where stdout is no terminal


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Where results go and in which form."""

    out: Path | None = None
    overwrite: bool = False
    plots: bool = True
    as_json: bool = False
    intervals: bool = False


def run_study(
    file: Path | None, flags: Mapping[str, Any], settings: Sequence[str], options: RunOptions
) -> int:
    """Run a study and return the exit code; `flags` are dotted keys, None where not given."""
    sys.path.append(str(Path.cwd()))  # a router given as module:name may lie where the user is
    study = _load(file, flags, settings)
    if study.trace.source.reading is not None:
        typer.echo(f"headway: {study.trace.source.reading}", err=True)
    folder = _target(study, options)
    if options.intervals:
        profile_with_errors(study)  # to fail now, not after the run
    started_s = time.perf_counter()
    with run_folder.staged_folder(folder, options.overwrite) as stage:
        with watched_run() as on_progress, FolderSink(stage) as sink:
            result = simulate(study, on_progress=on_progress, sink=sink)
        _refuse_if_nothing_ran(result)
        run_folder.write_about(result, stage, plots=options.plots)
    intervals = add_intervals(study, folder) if options.intervals else ()
    elapsed_s = time.perf_counter() - started_s
    _print_results(folder, options)
    if intervals and not options.as_json:
        print_intervals(intervals, study)
    if not result.info.partial:
        typer.echo(f"done in {elapsed_s:.1f} s", err=True)
    return _end(result, folder)


def _load(file: Path | None, flags: Mapping[str, Any], settings: Sequence[str]) -> ResolvedStudy:
    here = Path.cwd()
    overrides = [
        Override(key, anchored(key, value, here), f"--{key.partition('.')[0]} {value}")
        for key, value in flags.items()
        if value is not None
    ]
    overrides += [parse_override(text, here) for text in settings]
    if file is not None:
        return load_study(file, overrides)
    values = parse_yaml(sample_study_text(), _SAMPLE)
    if flags.get("trace.path") is not None:  # not the sample any more: named after what it runs
        values["name"] = _study_name(Path(flags["trace.path"]))
    return resolve_study(values, _SAMPLE, overrides)


def _study_name(trace: Path) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "-", trace.stem).lstrip("._-") or "study"


def _target(study: ResolvedStudy, options: RunOptions) -> Path:
    """The run folder, checked before the run: --out as given, else the first free runs/NAME-N."""
    if options.overwrite and options.out is None:
        raise StudyError("--overwrite needs --out, the folder to replace")
    folder = options.out or _first_free(RUNS / study.name)
    run_folder.check_target(folder, options.overwrite)
    return folder


def _first_free(folder: Path) -> Path:
    number, candidate = 1, folder
    while candidate.exists() or run_folder.being_written(candidate):
        number += 1
        candidate = folder.with_name(f"{folder.name}-{number}")
    return candidate


def _refuse_if_nothing_ran(result: RunResult) -> None:
    if num_rows(result.steps) or not num_rows(result.requests):
        return
    states = result.requests["state"]
    if bool((states == "rejected").all()):
        why = "; ".join(result.info.warnings)
        raise StudyError(f"none of {number_of(len(states), 'request')} can run: {why}")


def _print_results(folder: Path, options: RunOptions) -> None:
    if options.as_json:
        typer.echo((folder / run_folder.SUMMARY).read_text(encoding="utf-8"), nl=False)
        return
    from rich.console import Console

    from sim.summary_table import render_summary

    width = None if sys.stdout.isatty() else _TABLE_WIDTH
    console = Console(width=width, highlight=False)
    console.print(render_summary(run_folder.read_summary(folder)))
    typer.echo(f"run folder: {folder}")


def _end(result: RunResult, folder: Path) -> int:
    if not result.info.partial:
        return 0
    typer.echo(f"headway: interrupted; partial results are in {folder}, marked as such", err=True)
    return EXIT_INTERRUPTED
