"""Running the points of a plan: what is kept already is not run again."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from calibration import CalibrationError
from policies import PolicyError
from sim.config import resolve_study
from sim.errors import SimulationError, StudyError
from sim.simulation import simulate
from sim.study.executors import run_tasks
from sim.study.fingerprint import fingerprint
from sim.study.plan import Plan, Point
from sim.study.point_store import PointStore
from sim.study.row import Row, error_row, result_row
from sim.study.sweep_section import TrimSection
from traces import TraceError

_EXPECTED = (StudyError, TraceError, CalibrationError, PolicyError, SimulationError)


class SweepProgress(NamedTuple):
    """How far a sweep is; `num_kept` of the done points were there before."""

    num_done: int
    num_total: int
    num_kept: int
    num_failed: int


@dataclass(frozen=True, slots=True)
class Task:
    """A point to run, as it travels to a worker."""

    number: int
    label: str
    values: dict[str, Any]
    trim: TrimSection | None
    name: str
    store: PointStore | None


@dataclass(frozen=True, slots=True)
class SweepResult:
    """The rows of every point in the plan's order, and how many of them were kept from before."""

    rows: list[Row]
    num_kept: int
    num_failed: int
    keys: tuple[str, ...] = field(default=())


def run_sweep(
    plan: Plan,
    store: PointStore | None = None,
    on_progress: Callable[[SweepProgress], object] | None = None,
) -> SweepResult:
    """Run every point that the store does not have yet; a point that fails is a row with `error`.

    Raises:
        StudyError: a key or value of the grid is wrong; nothing was run.
        ResultError: the store can't be written.
    """
    points = plan.points()
    trim = plan.sweep.trim
    extra = None if trim is None else trim.model_dump()
    names = {point.number: _name(point, extra) for point in points}
    rows = _kept_rows(points, names, store)
    num_kept = len(rows)
    todo = [_task(p, trim, names[p.number], store) for p in points if p.number not in rows]
    report = on_progress or (lambda _: None)
    num_failed = _num_failed(rows.values())
    report(SweepProgress(num_kept, len(points), num_kept, num_failed))
    for number, row in _results(plan, todo):
        rows[number] = row
        num_failed += bool(row["error"])
        report(SweepProgress(len(rows), len(points), num_kept, num_failed))
    ordered = [{**_identity(point), **rows[point.number]} for point in points]
    return SweepResult(ordered, num_kept, num_failed, plan.keys)


def run_task(task: Task) -> tuple[int, Row]:
    """Run one point and keep its row. What is wrong with the point goes into the row."""
    try:
        study = resolve_study(task.values, task.label)
        row = result_row(study, simulate(study), task.trim)
    except _EXPECTED as error:
        return task.number, error_row(error)
    except Exception as error:  # a bug in one point, or its memory, must not lose the others
        return task.number, {"error": f"{type(error).__name__}: {error}"}
    if task.store is not None:
        task.store.write(task.name, row)
    return task.number, row


def _name(point: Point, extra: object) -> str:
    """The fingerprint; of a point whose files can't be read, a name that nothing is kept under."""
    try:
        return fingerprint(point.file, extra)
    except StudyError:
        return ""


def _results(plan: Plan, todo: list[Task]) -> Iterator[tuple[int, Row]]:
    sweep = plan.sweep
    return run_tasks(run_task, todo, sweep.executor, sweep.jobs, sweep.address)


def _kept_rows(
    points: list[Point], names: dict[int, str], store: PointStore | None
) -> dict[int, Row]:
    if store is None:
        return {}
    found = {p.number: store.read(names[p.number]) for p in points if names[p.number]}
    return {number: row for number, row in found.items() if row is not None}


def _task(point: Point, trim: TrimSection | None, name: str, store: PointStore | None) -> Task:
    values = point.file.model_dump(exclude_none=True, exclude={"provenance"})
    return Task(point.number, point.label, values, trim, name, store)


def _identity(point: Point) -> Row:
    settings = {key: value for key, value in point.settings if key != "seed"}
    return {"point": point.number, **settings, "seed": point.seed}


def _num_failed(rows: Any) -> int:
    return sum(bool(row["error"]) for row in rows)
