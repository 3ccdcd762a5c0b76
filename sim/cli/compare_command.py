"""`headway compare`."""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from sim.cli.sweep_command import parse_grid
from sim.config import parse_override
from sim.config.load import parse_study, read_study
from sim.config.overrides import Override, apply_overrides
from sim.errors import StudyError
from sim.folder_kind import FolderKind
from sim.study.compare import Comparison, compare_pairs, effect_rows, to_json
from sim.study.paired import Pair, run_pairs
from sim.study.point_store import write_atomically
from sim.study.sweep_folder import write_table

COMPARISONS = Path("comparisons")
_COMPARISON = FolderKind.COMPARISON.file
_GROUPS_SHOWN = 40


@dataclass(frozen=True, slots=True)
class CompareOptions:
    """How many seeds, how sure, and where to."""

    key: str | None = None
    settings: Sequence[str] = ()
    seeds: int = 10
    confidence: float = 0.95
    precision: float = 0.05
    jobs: int = -1
    out: Path | None = None


def compare_studies(a: Path, b: Path | None, options: CompareOptions) -> int:
    """Run both, print the verdicts, write the folder, and return the exit code."""
    _check(options)
    sys.path.append(str(Path.cwd()))  # a router given as module:name may lie where the user is
    arms = _arms(a, b, options)
    (a_name, a_values), (b_name, b_values) = arms
    first = int(a_values.get("seed", 0) or 0)
    seeds = list(range(first, first + options.seeds))
    done = 0

    def on_pair(pair: Pair) -> None:
        nonlocal done
        done += 1
        typer.echo(f"seed {pair.seed} run ({done} of at most {len(seeds)})", err=True)

    pairs = run_pairs(a_values, b_values, seeds, jobs=options.jobs, on_pair=on_pair)
    comparison = compare_pairs(
        pairs, a_name, b_name, confidence=options.confidence, precision=options.precision
    )
    _print(comparison, options)
    _save(comparison, {"a": a_values, "b": b_values}, options)
    return 0


def _check(options: CompareOptions) -> None:
    if not 0.5 <= options.confidence < 1:
        raise StudyError(f"--confidence {options.confidence}: it must be from 0.5 to below 1")
    if not options.precision > 0:
        raise StudyError(f"--precision {options.precision}: it must be more than 0, as in 0.05")


def _arms(a: Path, b: Path | None, options: CompareOptions) -> list[tuple[str, dict[str, Any]]]:
    """Names and values of the two studies, validated."""
    overrides = [parse_override(text, Path.cwd()) for text in options.settings]
    if (b is None) == (options.key is None):
        raise StudyError("compare: give two studies, or one and --key KEY=V1,V2")
    if b is not None:
        named = [(path.stem, _read(path, overrides)) for path in (a, b)]
        if named[0][0] == named[1][0]:
            named = [(str(path), values) for path, (_, values) in zip((a, b), named, strict=True)]
    else:
        named = _two_values(a, overrides, options.key or "")
    for name, values in named:
        parse_study(values, name)
    return named


def _two_values(
    path: Path, overrides: Sequence[Override], key: str
) -> list[tuple[str, dict[str, Any]]]:
    grid = parse_grid([key], Path.cwd())
    ((name, choices),) = grid.items()
    if len(choices) != 2:
        raise StudyError(f"--key {key!r}: it must have two values, this has {len(choices)}")
    return [
        (f"{name}={v}", _read(path, [*overrides, Override(name, v, f"--key {name}={v}")]))
        for v in choices
    ]


def _read(path: Path, overrides: Sequence[Override]) -> dict[str, Any]:
    values = apply_overrides(read_study(path), overrides)
    return {key: value for key, value in values.items() if key not in ("sweep", "provenance")}


def _print(comparison: Comparison, options: CompareOptions) -> None:
    typer.echo(f"A: {comparison.a}")
    typer.echo(f"B: {comparison.b}")
    typer.echo(f"{comparison.effects[0].method}; B against A, {options.confidence:.0%} intervals:")
    for effect in comparison.effects:
        better = {True: "  better", False: "  worse", None: ""}[effect.is_better]
        typer.echo(f"  {effect.sentence()}{better}")
    typer.echo("requests faster and slower in B (E2E, by more than 1 %):")
    for wins in comparison.wins:
        typer.echo(f"  {wins.group}: {wins.faster:.1%} faster, {wins.slower:.1%} slower")
    shown = [effect for effect in comparison.by_group if effect.is_better is not None]
    for effect in shown[:_GROUPS_SHOWN]:
        typer.echo(f"  {effect.sentence()}{'  better' if effect.is_better else '  worse'}")
    needed = {e.metric.label: e.seeds_needed for e in comparison.effects if e.seeds_needed}
    if needed:
        most = max(needed, key=lambda label: needed[label])
        typer.echo(
            f"seeds for a precision of {options.precision:.0%} in every metric: {needed[most]} "
            f"({most} needs most)"
        )
    for text in comparison.notes:
        typer.echo(f"note: {text}")


def _save(comparison: Comparison, configs: Mapping[str, Any], options: CompareOptions) -> None:
    folder = options.out or COMPARISONS / _folder_name(
        str(configs["a"].get("name", "study")), comparison
    )
    if folder.exists() and any(folder.iterdir()) and not (folder / _COMPARISON).exists():
        raise StudyError(f"{folder}: holds other things than a comparison; choose another name")
    text = json.dumps(to_json(comparison, configs), indent=2, allow_nan=False, default=str)
    write_atomically(folder / _COMPARISON, (text + "\n").encode())
    effects = (*comparison.effects, *comparison.by_group)
    write_table(folder, effect_rows(effects))
    _draw(comparison, folder / "compare.png")
    typer.echo(f"comparison folder: {folder}")


def _draw(comparison: Comparison, path: Path) -> None:
    from sim.plots.effects import plot_effects
    from sim.plots.style import house_style, new_figure, note, save_figure

    with house_style():
        figure = new_figure(0.8 + 0.33 * max(len(comparison.effects), 3))
        labels = [effect.metric.label for effect in comparison.effects]
        plot_effects(figure.subplots(), effect_rows(comparison.effects), labels)
        note(figure, [f"A: {comparison.a}", f"B: {comparison.b}", comparison.effects[0].method])
        save_figure(figure, path)


def _folder_name(study: str, comparison: Comparison) -> str:
    whole = f"{study}-{comparison.a}-vs-{comparison.b}"
    return re.sub(r"[^A-Za-z0-9._-]+", "-", whole).strip("-.")
