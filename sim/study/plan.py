"""From a study and its sweep section to the points to run."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sim.config.load import parse_study, read_study
from sim.config.overrides import Override
from sim.config.paths import anchored
from sim.config.schema import StudyFile
from sim.errors import StudyError
from sim.rng import Streams
from sim.study.sweep_section import RangeSection, SampleSection, SweepSection, parse_sweep

Settings = tuple[tuple[str, Any], ...]
ASK_ABOVE = 10_000
"""A plan of more points than this is only run if the user says that he means it."""


@dataclass(frozen=True, slots=True)
class Point:
    """One run: the keys that differ from the base study, the seed, and the whole study."""

    number: int
    settings: Settings
    seed: int
    file: StudyFile

    @property
    def label(self) -> str:
        """The settings and the seed in one line."""
        return ", ".join(f"{key}={value}" for key, value in (*self.settings, ("seed", self.seed)))


@dataclass(frozen=True, slots=True)
class Plan:
    """A base study (plain values) and what to vary in it."""

    base: Mapping[str, Any]
    source: str
    sweep: SweepSection

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that vary, in the file's order."""
        return tuple(self.sweep.grid)

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of every point."""
        if isinstance(self.sweep.seeds, list):
            return tuple(dict.fromkeys(self.sweep.seeds))
        first = int(self.base.get("seed", 0) or 0)
        return tuple(range(first, first + self.sweep.seeds))

    @property
    def num_points(self) -> int:
        """How many runs there are, without making a list of them."""
        lengths = [len(v) for v in self.sweep.grid.values() if isinstance(v, list)]
        whole = math.prod(lengths)
        if self.sweep.sample is not None:
            only_lists = len(lengths) == len(self.sweep.grid)
            points = self.sweep.sample.points
            whole = min(whole, points) if only_lists else points
        return whole * len(self.seeds)

    def points(self) -> list[Point]:
        """Every run, in the order of the grid, the seeds of a setting together.

        Raises:
            StudyError: a key that does not exist, or a value of the wrong type or range.
        """
        pairs = itertools.product(self._settings(), self.seeds)
        return [self._point(number, *pair) for number, pair in enumerate(pairs)]

    def _settings(self) -> Iterator[Settings]:
        grid = self.sweep.grid
        if self.sweep.sample is None:
            lists = [choices for choices in grid.values() if isinstance(choices, list)]
            return (tuple(zip(grid, row, strict=True)) for row in itertools.product(*lists))
        return sampled_settings(grid, self.sweep.sample)

    def _point(self, number: int, settings: Settings, seed: int) -> Point:
        overrides = [
            Override(key, value, f"{self.source}: sweep.grid.{key} = {value!r}")
            for key, value in settings
        ]
        if "seed" not in dict(settings):
            overrides.append(Override("seed", seed, f"{self.source}: sweep.seeds"))
        file = parse_study(self.base, self.source, overrides)
        return Point(number, settings, file.seed, file)


def load_plan(path: Path, grid: Mapping[str, Sequence[Any]] | None = None, **changes: Any) -> Plan:
    """Read a study file with a `sweep` section; `grid` and `changes` lie over the section.

    Raises:
        StudyError: what is wrong, in one sentence.
    """
    values = read_study(path)
    return make_plan(values, str(path), grid, folder=path.parent, **changes)


def make_plan(
    values: Mapping[str, Any],
    source: str,
    grid: Mapping[str, Sequence[Any]] | None = None,
    folder: Path | None = None,
    **changes: Any,
) -> Plan:
    """The same for a study given as plain values.

    Raises:
        StudyError: what is wrong, in one sentence.
    """
    section = values.get("sweep")
    if section is not None and not isinstance(section, Mapping):
        raise StudyError(f"{source}: sweep: it must be a mapping of keys, not {section!r:.60}")
    merged = {**(section or {}), **{k: v for k, v in changes.items() if v is not None}}
    merged["grid"] = {**_grid_of(merged.get("grid"), source, folder), **dict(grid or {})}
    base = {key: value for key, value in values.items() if key not in ("sweep", "provenance")}
    return Plan(base, source, parse_sweep(merged, source))


def require_grid(plan: Plan) -> None:
    """Raise StudyError if nothing varies."""
    if not plan.sweep.grid:
        raise StudyError(
            f"{plan.source}: the grid is empty; give sweep.grid, for instance "
            "{engine.max_num_seqs: [64, 128]}, or --grid engine.max_num_seqs=64,128"
        )


def _grid_of(grid: Any, source: str, folder: Path | None) -> dict[str, Any]:
    if grid is None:
        return {}
    if not isinstance(grid, Mapping):
        raise StudyError(f"{source}: sweep.grid: it must be a mapping of keys, not {grid!r:.60}")
    return {str(key): _anchor(str(key), values, folder) for key, values in grid.items()}


def _anchor(key: str, values: Any, folder: Path | None) -> Any:
    if folder is None or not isinstance(values, list):
        return values
    return [anchored(key, value, folder) for value in values]


def sampled_settings(
    grid: Mapping[str, list[Any] | RangeSection], sample: SampleSection
) -> Iterator[Settings]:
    """Distinct settings drawn from the grid: independently, or evenly spread (Sobol, scrambled).

    Fewer than asked for where the grid has fewer, or where two draws fall on one grid point.
    """
    unit = _unit_points(sample, len(grid))
    seen: dict[str, Settings] = {}
    for row in unit:
        drawn = zip(grid.items(), row, strict=True)
        settings = tuple((key, _value_at(choices, float(u))) for (key, choices), u in drawn)
        seen.setdefault(repr(settings), settings)
    return itertools.islice(seen.values(), sample.points)


def _unit_points(sample: SampleSection, dimensions: int) -> npt.NDArray[np.float64]:
    """Points of the unit cube; twice and more as many as wanted, since some fall together."""
    rng = Streams(sample.seed).rng(f"sweep.{sample.method}")
    power = math.ceil(math.log2(max(sample.points, 2))) + 2
    if sample.method == "random":
        return rng.random((2**power, dimensions))
    from scipy.stats import qmc  # noqa: PLC0415 -- slow to import, needed only here

    return np.asarray(qmc.Sobol(dimensions, scramble=True, seed=rng).random_base2(power))


def _value_at(choices: list[Any] | RangeSection, unit: float) -> Any:
    if isinstance(choices, list):
        return choices[min(int(unit * len(choices)), len(choices) - 1)]
    low, high = choices.low, choices.high
    value = low * (high / low) ** unit if choices.log else low + (high - low) * unit
    return round(value) if choices.integer else value
