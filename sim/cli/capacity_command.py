"""`headway capacity`: the rate that limits allow, or the replicas that they need."""

from collections.abc import Sequence
from pathlib import Path

import typer

from sim.cli.app import EXIT_FAILED
from sim.cli.sweep_command import SWEEPS, SweepOptions, plan_of, refuse_if_huge
from sim.errors import StudyError
from sim.run_result import Slo
from sim.study.capacity import Found, Search, too_short
from sim.study.capacity_answer import Answer, answer_of
from sim.study.capacity_folder import probe_rows, refuse_other_things, write_capacity
from sim.study.capacity_run import Group, Question, run_searches
from sim.study.gpu_costs import check_prices, parse_prices
from sim.study.plan import Plan
from sim.study.probe import SCALE, Probe, rate_key
from sim.study.slo import parse_limits
from sim.wording import number_of


def find_capacity(
    file: Path, options: SweepOptions, question: Question, prices: Sequence[str] = ()
) -> int:
    """Search for every configuration, print every probe and the answers; 1 if none has one."""
    plan = plan_of(file, options)
    refuse_if_huge(plan, options.yes)
    price_of = parse_prices(prices)
    question.check()
    if price_of and question.find == "rate":
        raise StudyError("--price: only --find replicas has costs; a rate is of the GPUs as given")
    check_prices(price_of, plan)
    what = "capacity" if question.find == "rate" else question.find
    folder = options.out or SWEEPS / f"{plan.base.get('name', 'study')}-{what}"
    refuse_other_things(folder)
    is_alone = plan.num_points == 1

    def on_found(found: Found) -> None:
        _print_found(found, with_probes=not is_alone)

    typer.echo(_wanted(plan, question))
    groups = run_searches(plan, question, on_found, _print_probe if is_alone else None)
    for group in groups:
        _warn_short(group)
    answers = [answer_of(group.founds, price_of, group.unknown) for group in groups]
    for answer in answers:
        _print_answer(answer)
    _print_cheapest(answers)
    write_capacity(folder, plan, groups, answers)
    _draw(groups, answers, folder)
    typer.echo(f"capacity folder: {folder}")
    return EXIT_FAILED if all(answer.value is None for answer in answers) else 0


def _wanted(plan: Plan, question: Question) -> str:
    """What is looked for, in one line."""
    file = plan.points()[0].file
    limits = parse_limits(question.slo, Slo(**file.slo.model_dump()))
    what = "largest arrival rate" if question.find == "rate" else "fewest replicas"
    return f"looking for the {what} with {' and '.join(limit.words() for limit in limits)}"


def _print_probe(search: Search, probe: Probe) -> None:
    tried = ""
    if search.kind == "replicas":
        tried = f"{number_of(int(probe.value), 'replica')} at "
    elif rate_key(search.values) == SCALE:
        tried = f"{SCALE} {probe.value:.4g}, "
    typer.echo(f"  tried {tried}{probe.line(search.limits)}")


def _print_found(found: Found, with_probes: bool) -> None:
    """A search in one line, those of the study's own step times with their probes."""
    search = found.search
    if search.is_plain:
        if with_probes:
            typer.echo(f"{search.label}, seed {search.seed}:")
            for probe in found.probes:
                _print_probe(search, probe)
        return
    if search.member is not None:
        what = f"variant {search.member.number + 1} of {search.member.count} of the profile"
    else:
        what = f"step times x {search.step_time_factor:g}"
    runs = number_of(len(found.probes), "run")
    typer.echo(f"  {search.label}, seed {search.seed}, {what}: {_found_words(found)} ({runs})")


def _found_words(found: Found) -> str:
    if found.value is None:
        return "nothing meets the limits"
    if found.search.kind == "rate":
        return f"{found.value:.4g} requests/s"
    return number_of(int(found.value), "replica")


def _warn_short(group: Group) -> None:
    for found in group.founds:
        reason = too_short(found) if found.search.is_plain else None
        if reason is not None:
            typer.echo(f"warning: {reason}", err=True)


def _print_answer(answer: Answer) -> None:
    typer.echo(answer.sentence())
    if answer.spread is not None:
        typer.echo(f"  {answer.spread.sentence()}")
    for warning in answer.warnings:
        typer.echo(f"  warning: {warning}")


def _print_cheapest(answers: Sequence[Answer]) -> None:
    """The cheapest of several configurations with replicas; without all prices, by GPUs."""
    counted = [answer for answer in answers if answer.gpus is not None]
    if len(counted) < 2:
        return
    hours = [a.dollars_an_hour for a in counted if a.dollars_an_hour is not None]
    if len(hours) == len(counted):
        best = [a.configuration for a in counted if a.dollars_an_hour == min(hours)]
        typer.echo(f"cheapest: {' and '.join(best)}, {min(hours):,.2f} dollars an hour")
        return
    fewest = min(a.gpus or 0 for a in counted)
    best = [a.configuration for a in counted if a.gpus == fewest]
    typer.echo(f"fewest GPUs: {' and '.join(best)}, {number_of(fewest, 'GPU')}")
    if hours:
        unpriced = sorted({a.hardware for a in counted if a.dollars_an_hour is None})
        typer.echo(f"  costs are not compared: no --price of {' and '.join(unpriced)}")


def _draw(groups: Sequence[Group], answers: Sequence[Answer], folder: Path) -> None:
    from sim.plots.capacity import capacity_figure
    from sim.plots.style import house_style, save_figure

    search = groups[0].founds[0].search
    with house_style():
        figure = capacity_figure(
            probe_rows(groups),
            [answer.row() for answer in answers],
            [(limit.metric, limit.limit) for limit in search.limits],
            kind=search.kind,
            notes=sorted({answer.cost_label for answer in answers}),
        )
        save_figure(figure, folder / "capacity.png")
