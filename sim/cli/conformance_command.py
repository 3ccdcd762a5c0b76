"""`headway conformance replay`."""

from pathlib import Path

import typer

from sim.conformance import ConformanceReport, replay_file


def replay_cases(file: Path, emit: Path | None) -> int:
    """Replay, print what differs and the counts, and return the exit code."""
    report = replay_file(file, emit)
    for outcome in report.outcomes:
        if outcome.difference is not None:
            typer.echo(f"{outcome.name}: {outcome.difference}")
    for line in count_lines(report):
        typer.echo(line)
    if emit is not None:
        typer.echo(f"{len(report.outcomes)} cases with our steps written to {emit}", err=True)
    return 0 if report.num_identical == report.num_compared else 1


def count_lines(report: ConformanceReport) -> list[str]:
    """A line for each family of which a case differs, then the total."""
    lines = [
        f"{family}: {identical} of {compared} identical"
        for family, (identical, compared) in report.by_family.items()
        if identical != compared
    ]
    uncompared = len(report.outcomes) - report.num_compared
    note = f" ({uncompared} cases carry no steps to compare with)" if uncompared else ""
    return [*lines, f"{report.num_identical} of {report.num_compared} identical{note}"]
