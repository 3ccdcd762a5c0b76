"""`headway capacity`: the rate that limits allow, or the replicas that they need."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import typer

from sim.cli.app import EXIT_FAILED
from sim.cli.sweep_command import SweepOptions, plan_of, refuse_if_huge
from sim.errors import StudyError
from sim.run_result import Slo
from sim.study.capacity import (
    Found,
    Kind,
    Search,
    nothing_meets,
    run_search,
    seed_interval,
    too_short,
)
from sim.study.executors import run_tasks
from sim.study.gpu_costs import dollars_an_hour, parse_prices, watts
from sim.study.plan import Plan, Point
from sim.study.probe import Probe
from sim.study.slo import Limit, parse_limits
from sim.study.sweep_folder import write_table


@dataclass(frozen=True, slots=True)
class CapacityOptions:
    """What to find, under which limits, how exactly, and at which prices."""

    find: str = "rate"
    slo: Sequence[str] = ()
    tolerance: float = 0.02
    most_replicas: int = 64
    start: float | None = None
    step_time_error: float | None = None
    prices: Sequence[str] = ()
    accept_short: bool = False


def find_capacity(file: Path, options: SweepOptions, capacity: CapacityOptions) -> int:
    """Search for every configuration, print every probe and the answers; 1 if one has none."""
    plan = plan_of(file, options)
    refuse_if_huge(plan, options.yes)
    prices = parse_prices(capacity.prices)
    searches = _searches(plan, capacity)
    groups: dict[str, list[Found]] = {}
    for found in _run(searches, plan):
        _print_probes(found, printed=len(searches) == 1)
        groups.setdefault(_configuration(found), []).append(found)
    rows = [_answer(label, founds, capacity, prices) for label, founds in groups.items()]
    _print_best(rows, capacity)
    if options.out is not None:
        write_table(options.out, rows, "capacity")
        typer.echo(f"table: {options.out / 'capacity.csv'} and .parquet")
    return EXIT_FAILED if all(row["value"] is None for row in rows) else 0


def _searches(plan: Plan, options: CapacityOptions) -> list[Search]:
    if options.find not in ("rate", "replicas"):
        raise StudyError(f"--find {options.find!r}: it must be rate or replicas")
    if not 0 < options.tolerance < 1:
        raise StudyError(f"--tolerance {options.tolerance}: it must be between 0 and 1, as in 0.02")
    error = options.step_time_error
    if error is not None and not 0 < error < 1:
        raise StudyError(f"--step-time-error {error}: it must be between 0 and 1, as in 0.1")
    searches = [_search(point, options) for point in plan.points()]
    if error is not None:
        first = plan.seeds[0]
        scaled = [
            replace(s, step_time_factor=factor)
            for s in searches
            if s.seed == first
            for factor in (1 - error, 1 + error)
        ]
        searches += scaled
    return searches


def _search(point: Point, options: CapacityOptions) -> Search:
    values = point.file.model_dump(exclude_none=True, exclude={"provenance"})
    slo = Slo(**point.file.slo.model_dump())
    kind: Kind = "rate" if options.find == "rate" else "replicas"
    label = ", ".join(f"{key}={value}" for key, value in point.settings) or point.file.name
    return Search(
        kind,
        label,
        values,
        parse_limits(options.slo, slo),
        point.seed,
        tolerance=options.tolerance,
        most_replicas=options.most_replicas,
        start=options.start,
    )


def _run(searches: list[Search], plan: Plan) -> Any:
    if len(searches) == 1:
        yield run_search(searches[0], _probe_printer(searches[0].limits))
        return
    sweep = plan.sweep
    yield from run_tasks(run_search, searches, sweep.executor, sweep.jobs, sweep.address)


def _probe_printer(limits: tuple[Limit, ...]) -> Callable[[Probe], None]:
    return lambda probe: typer.echo(f"  probe {probe.value:.4g}: {probe.line(limits)}")


def _print_probes(found: Found, printed: bool) -> None:
    search = found.search
    if printed:
        return
    factor = search.step_time_factor
    scaled = "" if factor == 1 else f", step times x {factor:g}"
    typer.echo(f"{search.label}, seed {search.seed}{scaled}:")
    for probe in found.probes:
        _probe_printer(search.limits)(probe)


def _configuration(found: Found) -> str:
    return found.search.label


def _answer(
    label: str, founds: list[Found], options: CapacityOptions, prices: dict[str, float]
) -> dict[str, Any]:
    """The answer for one configuration, printed, and as a row."""
    plain = sorted(
        (f for f in founds if f.search.step_time_factor == 1), key=lambda f: f.search.seed
    )
    _refuse_short(plain, options.accept_short)
    failed = next((text for f in plain if (text := nothing_meets(f)) is not None), None)
    row: dict[str, Any] = {"configuration": label, "value": None, "hardware": plain[0].hardware}
    if failed is not None:
        typer.echo(f"{label}: {failed}")
        return row
    values = [f.value for f in plain if f.value is not None]
    is_rate = options.find == "rate"
    row["value"] = sum(values) / len(values) if is_rate else max(values)
    row |= _ends(plain, [f for f in founds if f.search.step_time_factor != 1])
    if not is_rate:
        gpus = int(max(values)) * plain[0].gpus_a_replica
        row |= {
            "gpus": gpus,
            "watts": watts(plain[0].hardware, gpus),
            "dollars_an_hour": dollars_an_hour(plain[0].hardware, gpus, prices),
        }
    typer.echo(_sentence(row, plain, is_rate))
    return row


def _refuse_short(founds: Sequence[Found], accept: bool) -> None:
    for found in founds:
        reason = too_short(found)
        if reason is not None and not accept:
            raise StudyError(f"{found.search.label}: {reason}, or --accept-short to see it anyway")
        if reason is not None:
            typer.echo(f"warning: {reason}", err=True)


def _ends(plain: Sequence[Found], scaled: Sequence[Found]) -> dict[str, Any]:
    """Ends of the seeds' interval, and the answers with longer and shorter step times."""
    interval = seed_interval(plain)
    low_high: dict[str, Any] = {
        "seeds_low": None if interval is None else interval.low,
        "seeds_high": None if interval is None else interval.high,
        "next_bad": plain[0].next_bad,
    }
    for found in scaled:
        side = "faster" if found.search.step_time_factor < 1 else "slower"
        low_high[f"steps_{side}"] = found.value
    return low_high


def _sentence(row: dict[str, Any], plain: Sequence[Found], is_rate: bool) -> str:
    at = plain[0].at
    limited = f", limited by {at.main_limit}" if at is not None else ""
    if is_rate:
        parts = [f"{row['configuration']}: {row['value']:.4g} requests/s meet the limits{limited}"]
        if len(plain) == 1 and row["next_bad"] is not None:
            parts.append(f"{row['next_bad']:.4g} do not")
    else:
        parts = [f"{row['configuration']}: {row['value']:.0f} replicas meet the limits"]
        below = plain[0].next_bad
        parts.append("fewer there are not" if below is None else f"{below:.0f} do not")
        parts.append(f"{row['gpus']} GPUs")
        if row["watts"] is not None:
            parts.append(f"{row['watts']:,} W of board power at most")
        if row["dollars_an_hour"] is not None:
            hour = row["dollars_an_hour"]
            parts.append(f"{hour:,.2f} dollars an hour, {hour * 8760:,.0f} a year")
    if row["seeds_low"] is not None:
        parts.append(f"95 % over seeds [{row['seeds_low']:.4g}, {row['seeds_high']:.4g}]")
    elif len(plain) > 1:
        parts.append("seeds change nothing in this trace, so they give no interval")
    for side in ("slower", "faster"):
        if f"steps_{side}" in row:
            value = row[f"steps_{side}"]
            shown = "none" if value is None else f"{value:.4g}"
            parts.append(f"with {side} steps {shown}")
    return "; ".join(parts)


def _print_best(rows: Sequence[dict[str, Any]], options: CapacityOptions) -> None:
    """The cheapest configuration, where there are several with replicas."""
    counted = [row for row in rows if row["value"] is not None]
    if options.find == "rate" or len(counted) < 2:
        return
    by_price = all(row["dollars_an_hour"] is not None for row in counted)
    unit = "dollars_an_hour" if by_price else "gpus"
    best = min(counted, key=lambda row: (row[unit], row["value"]))
    typer.echo(f"cheapest in {unit.replace('_', ' ')}: {best['configuration']} ({best[unit]:g})")
