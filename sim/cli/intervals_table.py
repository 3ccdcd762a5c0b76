"""The intervals of a run: computed, printed, and kept beside its summary."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import typer

from sim.config import ResolvedStudy
from sim.errors import ResultError
from sim.intervals import COVERAGE, NUM_MEMBERS, Interval, run_intervals
from sim.result import read_summary
from sim.study.profile_members import lacks_host_time

INTERVALS = "intervals.json"


def add_intervals(study: ResolvedStudy, folder: Path) -> Sequence[Interval]:
    """Run the ensemble of a finished run and write its intervals into the run folder.

    Raises:
        StudyError, CalibrationError: the cost model has no known error.
        ResultError: the folder can't be written.
    """

    def on_member(number: int) -> None:
        if sys.stderr.isatty():
            _echo_count(number)

    intervals = run_intervals(study, read_summary(folder), on_member=on_member)
    document = {
        "coverage": COVERAGE,
        "num_members": NUM_MEMBERS,
        "intervals": [asdict(interval) for interval in intervals],
    }
    try:
        (folder / INTERVALS).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise ResultError(f"{folder / INTERVALS}: can't be written: {error}") from error
    return intervals


def _echo_count(number: int) -> None:
    is_last = number == NUM_MEMBERS
    typer.echo(f"\rintervals: run {number} of {NUM_MEMBERS}", err=True, nl=is_last)


def print_intervals(intervals: Sequence[Interval], study: ResolvedStudy) -> None:
    """Print one line a metric, and what the intervals do not cover."""
    typer.echo(
        f"Intervals: {COVERAGE:.0%} of {NUM_MEMBERS} runs with the profile's own uncertainty"
    )
    if lacks_host_time(study):
        typer.echo("  not covered: the host's time, which is 0 here (engine.host_overhead_s)")
    for interval in intervals:
        typer.echo(
            f"  {interval.metric:24}{interval.value:>12.4g}"
            f"   {interval.low:.4g} to {interval.high:.4g}"
        )
