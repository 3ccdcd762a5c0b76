"""`headway conformance replay`, `record` and `shrink`."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import typer

from sim.conformance import (
    Case,
    ConformanceError,
    ConformanceReport,
    read_cases,
    replay_file,
    write_cases,
)
from sim.conformance.families import FAMILIES
from sim.conformance.record import Recorder
from sim.conformance.shrink import shrink_case
from sim.conformance.workloads import make_workloads
from sim.wording import number_of


def replay_cases(file: Path, emit: Path | None) -> int:
    """Replay, print what differs and the counts, and return the exit code."""
    report = replay_file(file, emit)
    for outcome in report.outcomes:
        if outcome.difference is not None:
            typer.echo(f"{outcome.name}: {outcome.difference}")
    for line in count_lines(report):
        typer.echo(line)
    if emit is not None:
        typer.echo(
            f"{number_of(len(report.outcomes), 'case')} with our steps written to {emit}", err=True
        )
    return 0 if report.num_identical == report.num_compared else 1


def count_lines(report: ConformanceReport) -> list[str]:
    """A line for each family of which a case differs, then the total."""
    lines = [
        f"{family}: {identical} of {compared} identical"
        for family, (identical, compared) in report.by_family.items()
        if identical != compared
    ]
    uncompared = len(report.outcomes) - report.num_compared
    words = number_of(uncompared, "case carries", "cases carry")
    note = f" ({words} no steps to compare with)" if uncompared else ""
    return [*lines, f"{report.num_identical} of {report.num_compared} identical{note}"]


def record_cases(
    python: Path, out: Path, families: Sequence[str], count: int, seed: int, scheduler: str
) -> int:
    """Draw workloads, have vLLM decide them, write the cases; 1 if vLLM failed on one."""
    drawn = [case for f in families or FAMILIES for case in make_workloads(f, count, seed)]
    return _record(python, out, drawn, scheduler)


def record_again(python: Path, out: Path, source: Path, scheduler: str) -> int:
    """The same for the workloads of a file, whatever steps it gives."""
    return _record(python, out, list(read_cases(source)), scheduler)


def _record(python: Path, out: Path, workloads: Sequence[Case], scheduler: str) -> int:
    with Recorder(python, scheduler) as recorder:
        version = recorder.vllm_version
        recorded = list(_answers(recorder, workloads))
    write_cases(out, recorded)
    typer.echo(f"{number_of(len(recorded), 'case')} decided by vLLM {version} written to {out}")
    return 0 if len(recorded) == len(workloads) else 1


def _answers(recorder: Recorder, workloads: Iterable[Case]) -> Iterator[Case]:
    for workload in workloads:
        try:
            yield recorder.record(workload)
        except ConformanceError as error:
            typer.echo(str(error), err=True)


def shrink_differing(python: Path, file: Path, out: Path, scheduler: str) -> int:
    """Shrink every case of a file that differs from ours; 1 if there was one."""
    differing = {o.name for o in replay_file(file).outcomes if o.difference is not None}
    cases = [case for case in read_cases(file) if case["name"] in differing]
    if not cases:
        typer.echo("no case differs")
        return 0
    with Recorder(python, scheduler) as recorder:
        small = [shrink_case(case, recorder.record) for case in cases]
    write_cases(out, small)
    for case in small:
        requests = number_of(len(case["requests"]), "request")
        typer.echo(f"{case['name']}: {requests}, {number_of(len(case['steps']), 'step')}")
    return 1
