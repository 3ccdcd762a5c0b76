"""`headway sweep`, and what every command that runs a plan shares."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from sim.cli.app import EXIT_FAILED, EXIT_INTERRUPTED
from sim.cli.sweep_progress import watched_sweep
from sim.config import parse_override
from sim.config.load import read_study
from sim.config.overrides import apply_overrides
from sim.config.paths import anchored
from sim.config.yaml_source import parse_yaml
from sim.errors import StudyError
from sim.study.plan import ASK_ABOVE, Plan, make_plan, require_grid
from sim.study.row import Row
from sim.study.sweep import SweepResult, run_sweep
from sim.study.sweep_folder import TABLE_CSV, TABLE_PARQUET, open_folder, write_table
from sim.wording import number_of

SWEEPS = Path("sweeps")
_WARNINGS_SHOWN = 3


@dataclass(frozen=True, slots=True)
class SweepOptions:
    """What the command line lays over the study's sweep section."""

    grid: Sequence[str] = ()
    settings: Sequence[str] = ()
    seeds: int | None = None
    executor: str | None = None
    jobs: int | None = None
    out: Path | None = None
    yes: bool = False


def sweep_study(file: Path, options: SweepOptions) -> int:
    """Run a sweep, write its table, and return the exit code."""
    plan = plan_of(file, options)
    require_grid(plan)
    refuse_if_huge(plan, options.yes)
    folder = options.out or SWEEPS / str(plan.base.get("name", "study"))
    result = run_plan(plan, folder)
    if result is None:
        return EXIT_INTERRUPTED
    write_table(folder, result.rows)
    print_run_warnings(result.rows)
    _print_outcome(result, folder)
    return EXIT_FAILED if result.num_failed == len(result.rows) else 0


def plan_of(
    file: Path, options: SweepOptions, grid: Mapping[str, Sequence[Any]] | None = None
) -> Plan:
    """The plan of a study file and the command's options; `grid` lies over both."""
    here = Path.cwd()
    sys.path.append(str(here))  # a router given as module:name may lie where the user is
    overrides = [parse_override(text, here) for text in options.settings]
    values = apply_overrides(read_study(file), overrides)
    given = {**parse_grid(options.grid, here), **(grid or {})}
    return make_plan(
        values,
        str(file),
        given,
        folder=file.parent,
        seeds=options.seeds,
        executor=options.executor,
        jobs=options.jobs,
    )


def parse_grid(texts: Sequence[str], folder: Path) -> dict[str, list[Any]]:
    """Read `key=v1,v2,...`; the values are a YAML list without its brackets.

    Raises:
        StudyError: there is no key, or the values are not YAML.
    """
    grid: dict[str, list[Any]] = {}
    for text in texts:
        key, equals, values = text.partition("=")
        if not equals or not all(key.strip().split(".")):
            raise StudyError(f"--grid {text!r}: it must be key=v1,v2, for instance seed=1,2,3")
        parsed = parse_yaml(f"[{values}]", f"--grid {text}")
        grid[key.strip()] = [anchored(key.strip(), value, folder) for value in parsed]
    return grid


def refuse_if_huge(plan: Plan, yes: bool) -> None:
    """Raise StudyError for more points than anybody runs by mistake, unless `yes`."""
    if plan.num_points > ASK_ABOVE and not yes:
        raise StudyError(
            f"{plan.source}: the grid has {plan.num_points:,} points; give --yes to run them all, "
            "or sweep.sample: {method: sobol, points: 256} to run some"
        )


def run_plan(plan: Plan, folder: Path) -> SweepResult | None:
    """Run a plan into a folder with its progress on stderr; None if it was interrupted."""
    plan.points()  # a wrong grid is refused before the plan of an earlier sweep is replaced
    store = open_folder(folder, plan)
    try:
        with watched_sweep() as on_progress:
            return run_sweep(plan, store, on_progress)
    except KeyboardInterrupt:
        typer.echo(
            f"headway: interrupted; finished points are kept in {folder}, run it again to go on",
            err=True,
        )
        return None


def print_run_warnings(rows: Sequence[Row]) -> None:
    """What runs warn of, such as steps beyond the calibrated range: the first few, and how many."""
    warned = [row for row in rows if row.get("run.warnings")]
    texts = list(dict.fromkeys(str(row["run.warnings"]) for row in warned))
    for text in texts[:_WARNINGS_SHOWN]:
        typer.echo(f"warning: {text}")
    if warned:
        typer.echo(f"{len(warned):,} of {len(rows):,} runs warn; table.csv has it: run.warnings")


def _print_outcome(result: SweepResult, folder: Path) -> None:
    for row in [row for row in result.rows if row["error"]][:5]:
        keys = ", ".join(f"{key}={row[key]}" for key in (*result.keys, "seed") if key in row)
        typer.echo(f"failed: {keys}: {row['error']}", err=True)
    typer.echo(
        f"{number_of(len(result.rows), 'point')}: {len(result.rows) - result.num_kept:,} run, "
        f"{result.num_kept:,} kept from before, {result.num_failed:,} failed"
    )
    typer.echo(f"table: {folder / TABLE_PARQUET} and {TABLE_CSV}")
