"""`headway check`."""

from pathlib import Path

import typer

from sim.checks import check_dir
from sim.cli.app import EXIT_FAILED


def check_folder(folder: Path) -> int:
    """Check a run folder, print a line for each invariant, and return the exit code."""
    outcomes = check_dir(folder)
    for outcome in outcomes:
        mark = "ok  " if outcome.ok else "FAIL"
        typer.echo(f"{mark}  {outcome.name}: {outcome.detail}")
    num_failed = sum(not outcome.ok for outcome in outcomes)
    typer.echo(f"{len(outcomes) - num_failed} of {len(outcomes)} checks hold")
    return EXIT_FAILED if num_failed else 0
