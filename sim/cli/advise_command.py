"""`headway advise`."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import typer

from sim.cli.app import EXIT_FAILED, EXIT_INTERRUPTED
from sim.cli.sweep_command import (
    SWEEPS,
    SweepOptions,
    plan_of,
    print_run_warnings,
    refuse_if_huge,
    run_plan,
)
from sim.config.messages import nearest
from sim.errors import StudyError
from sim.metrics import PERCENTILES
from sim.metrics.units import axis_unit, metric_words, three_digits, time_unit
from sim.study.advice_folder import FIGURE, STUDIES, write_advice
from sim.study.advise import Advice, Front, advise
from sim.study.gpu_costs import check_prices, parse_prices
from sim.study.plan import require_grid
from sim.study.sweep_folder import write_table

_LATENCIES = tuple(
    f"{name}_{stat}_s"
    for name in ("ttft", "tpot", "e2e", "queue_time")
    for stat in ("mean", *(f"p{p}" for p in PERCENTILES))
)


def advise_on(
    file: Path, options: SweepOptions, latency: str = "ttft_p99_s", prices: Sequence[str] = ()
) -> int:
    """Sweep, print the settings on the front, write them as studies; 1 if there is none."""
    if latency not in _LATENCIES:
        raise StudyError(f"--latency {latency!r}: unknown; {nearest(latency, _LATENCIES)}")
    price_of = parse_prices(prices)
    plan = plan_of(file, options)
    require_grid(plan)
    refuse_if_huge(plan, options.yes)
    check_prices(price_of, plan)
    folder = options.out or SWEEPS / f"{plan.base.get('name', 'study')}-advice"
    result = run_plan(plan, folder)
    if result is None:
        return EXIT_INTERRUPTED
    write_table(folder, result.rows)
    name, _, stat = latency.removesuffix("_s").rpartition("_")
    advices, front = advise(plan, result.rows, f"latency.{name}_s.{stat}", price_of)
    unit = "dollars" if price_of else "GPU hours"
    write_advice(folder, plan, advices, front, latency=latency, cost_unit=unit)
    print_run_warnings(result.rows)
    for label, why in front.left_out:
        typer.echo(f"left out: {label}: {why}")
    if not advices:
        typer.echo(
            "no setting can be advised: every one fails, refuses requests, is overloaded or misses "
            "the study's slo"
        )
        return EXIT_FAILED
    _print(advices, latency, unit)
    cost = sorted({str(row["run.cost"]) for row in result.rows if row.get("run.cost")})
    _draw(front, folder, f"{unit} / 1M output tokens", latency, cost)
    typer.echo(f"studies to run: {folder / STUDIES}; figure: {folder / FIGURE}")
    return 0


def _print(advices: Sequence[Advice], latency: str, unit: str) -> None:
    for number, advice in enumerate(advices, start=1):
        typer.echo(f"{number}. {advice.label}")
        time = time_unit(advice.latency_s)
        value = three_digits(advice.latency_s * time.scale)
        typer.echo(
            f"   {metric_words(latency)} {value} {time.name}, "
            f"{three_digits(advice.cost)} {unit} a million output tokens"
        )
        typer.echo(f"   why: {advice.why}")
        typer.echo(f"   limited by {advice.limit}")


def _draw(front: Front, folder: Path, cost_name: str, latency: str, notes: Sequence[str]) -> None:
    from sim.plots.pareto import plot_pareto
    from sim.plots.style import house_style, new_figure, note, save_figure

    latencies = np.array(front.latency_s)
    unit = axis_unit(latencies)
    with house_style():
        figure = new_figure(4.2)
        plot_pareto(
            figure.subplots(),
            np.array(front.cost),
            unit.scale * latencies,
            np.array(front.on_front, dtype=np.intp),
            [str(number) for number in range(1, len(front.on_front) + 1)],
            cost_name=cost_name,
            latency_name=f"{metric_words(latency)} ({unit.name})",
        )
        note(figure, ["numbers: the studies in the folder advice", *notes])
        save_figure(figure, folder / FIGURE)
