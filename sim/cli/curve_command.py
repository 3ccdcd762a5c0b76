"""`headway curve`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from sim.cli.app import EXIT_INTERRUPTED
from sim.cli.sweep_command import (
    SWEEPS,
    SweepOptions,
    plan_of,
    print_run_warnings,
    refuse_if_huge,
    run_plan,
)
from sim.config import parse_override
from sim.config.load import read_study
from sim.config.overrides import apply_overrides
from sim.errors import StudyError
from sim.study.curve import CONCURRENCY, curve_lines, curve_rows, load_grid, read_measured
from sim.study.sweep_folder import write_table
from sim.wording import number_of


@dataclass(frozen=True, slots=True)
class CurveOptions:
    """The loads to run, and measured points to draw beside them."""

    rates: str | None = None
    concurrency: str | None = None
    measured: Path | None = None


def draw_curve(file: Path, options: SweepOptions, curve: CurveOptions) -> int:
    """Run the loads for every configuration, write curve.csv, .png and .pdf."""
    from sim.plots.curve import curve_figure, save_curve
    from sim.plots.style import house_style

    grid, settings = _loads(file, options, curve)
    plan = plan_of(file, SweepOptions(**{**_fields(options), "settings": settings}), grid)
    refuse_if_huge(plan, options.yes)
    measured = None
    if curve.measured is not None:
        measured = read_measured(_text(curve.measured), str(curve.measured))
    folder = options.out or SWEEPS / f"{plan.base.get('name', 'study')}-curve"
    result = run_plan(plan, folder)
    if result is None:
        return EXIT_INTERRUPTED
    write_table(folder, result.rows)
    load_key = next(iter(grid))
    is_closed = load_key == CONCURRENCY
    lines = curve_lines(result.rows, plan.keys, load_key)
    if not lines:
        raise StudyError(f"no point could be run: {result.rows[0]['error']}")
    write_table(folder, curve_rows(lines), "curve")
    slo = plan.base.get("slo") or {}
    good = [row for row in result.rows if not row["error"]]
    with house_style():
        figure = curve_figure(
            lines,
            ttft_limit_s=slo.get("ttft_s"),
            tpot_limit_s=slo.get("tpot_s"),
            measured=measured,
            has_clients=is_closed,
            notes=[str(good[0]["run.cost"])],
        )
    save_curve(figure, folder)
    _print_lines(lines, is_closed)
    print_run_warnings(result.rows)
    typer.echo(f"figure: {folder / 'curve.png'} and .pdf; data: curve.csv and .parquet")
    return 0


def _loads(
    file: Path, options: SweepOptions, curve: CurveOptions
) -> tuple[dict[str, list[Any]], Sequence[str]]:
    if (curve.rates is None) == (curve.concurrency is None):
        raise StudyError("curve: give one of --rates 1,2,4 (requests/s) and --concurrency 1,2,4")
    here = Path.cwd()
    overrides = [parse_override(text, here) for text in options.settings]
    values = apply_overrides(read_study(file), overrides)
    if curve.rates is not None:
        base = {k: v for k, v in values.items() if k not in ("sweep", "provenance")}
        return dict(load_grid(base, _numbers("--rates", curve.rates))), options.settings
    clients = [int(value) for value in _numbers("--concurrency", curve.concurrency or "")]
    load = values.get("load")
    is_closed = isinstance(load, Mapping) and load.get("mode") == "closed"
    closed = [] if is_closed else [f"load={{mode: closed, concurrency: {clients[0]}}}"]
    return {CONCURRENCY: clients}, [*options.settings, *closed]


def _numbers(option: str, text: str) -> list[float]:
    try:
        numbers = sorted({float(part) for part in text.split(",")})
    except ValueError:
        numbers = []
    if not numbers or numbers[0] <= 0 or numbers[-1] == float("inf"):
        raise StudyError(f"{option} {text!r}: it must be positive numbers, as in 1,2,4")
    return numbers


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise StudyError(f"{path}: can't be read ({error})") from error


def _fields(options: SweepOptions) -> dict[str, Any]:
    return {name: getattr(options, name) for name in options.__slots__}


def _print_lines(lines: Mapping[str, Any], is_closed: bool) -> None:
    for label, columns in lines.items():
        typer.echo(f"{label}:")
        for i in range(len(columns["load"])):
            load = f"{columns['arrival_rate_per_s'][i]:.3g} requests/s"
            if is_closed:
                load = f"{number_of(int(columns['load'][i]), 'client')}, {load}"
            typer.echo(f"  {load}: {_point(columns, i)}")
    if any(columns["is_saturated"].any() for columns in lines.values()):
        typer.echo(
            "saturated: more arrives than is served, so latencies grow with the length of the "
            "trace; the throughput is that of the time in which every replica is full"
        )


def _point(columns: Mapping[str, Any], i: int) -> str:
    ttft = (
        f"TTFT mean {columns['ttft_mean_s'][i]:.3g} s, p99 {columns['ttft_p99_s'][i]:.3g} s, "
        f"TPOT {1e3 * columns['tpot_mean_s'][i]:.3g} ms"
    )
    if columns["too_short"][i]:
        return f"no throughput, the run is too short: {columns['too_short'][i]}; {ttft}"
    marks = " saturated" * bool(columns["is_saturated"][i]) + " knee" * bool(columns["is_knee"][i])
    return f"{columns['output_tokens_per_s_per_gpu'][i]:,.0f} tokens/s/GPU, {ttft}{marks}"
