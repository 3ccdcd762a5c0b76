"""All searches of a capacity question: first the study's own, then those near its answers."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from sim.config import resolve_study
from sim.errors import StudyError
from sim.run_result import Slo
from sim.study.capacity import Found, Kind, Search, run_search, too_short
from sim.study.executors import run_tasks
from sim.study.plan import Plan, Point
from sim.study.probe import Probe
from sim.study.profile_members import NUM_MEMBERS, Member, unknown_error
from sim.study.slo import parse_limits
from sim.study.sweep_section import TrimSection


@dataclass(frozen=True, slots=True)
class Question:
    """What to find, under which limits, how exactly, and which errors to carry to the answer.

    `num_members` is how many profiles of an ensemble to search with; 0 leaves the profile's errors
    out. `step_time_error` is an error of all step times to search with, as a share.
    """

    find: str = "rate"
    slo: Sequence[str] = ()
    tolerance: float = 0.02
    most_replicas: int = 64
    start: float | None = None
    step_time_error: float | None = None
    num_members: int = NUM_MEMBERS
    accept_short: bool = False

    def check(self) -> None:
        """Raise StudyError if a part of it makes no sense."""
        if self.find not in ("rate", "replicas"):
            raise StudyError(f"--find {self.find!r}: it must be rate or replicas")
        if not 0 < self.tolerance < 1:
            raise StudyError(
                f"--tolerance {self.tolerance}: it must be between 0 and 1, as in 0.02"
            )
        error = self.step_time_error
        if error is not None and not 0 < error < 1:
            raise StudyError(f"--step-time-error {error}: it must be between 0 and 1, as in 0.1")
        if self.num_members == 1:
            raise StudyError("--profile-members 1: one says nothing of a spread; 0, or 2 and more")


@dataclass(frozen=True, slots=True)
class Group:
    """One configuration's searches; `unknown` says why the profile's errors are not in them."""

    founds: tuple[Found, ...]
    unknown: str | None


def run_searches(
    plan: Plan,
    question: Question,
    on_found: Callable[[Found], object],
    on_probe: Callable[[Search, Probe], object] | None = None,
) -> list[Group]:
    """Search for every configuration and seed, then with every other step time near the answers.

    `on_found` is told of every search that has ended; `on_probe`, where there is one search alone,
    of every probe of it.

    Raises:
        StudyError: the study or the question is wrong, or a trace is too short for an answer.
    """
    question.check()
    searches = [_search(point, question, plan.sweep.trim) for point in plan.points()]
    groups: dict[str, list[Found]] = {search.label: [] for search in searches}
    for found in _run(searches, plan, on_probe):
        on_found(found)
        groups[found.search.label].append(found)
    for founds in groups.values():
        founds.sort(key=lambda found: found.search.seed)
        if not question.accept_short:
            _refuse_short(founds)
    unknown = {label: _unknown(founds[0], question) for label, founds in groups.items()}
    more = [
        search
        for label, founds in groups.items()
        for search in _near_answers(founds, question, unknown[label] is None)
    ]
    for found in run_tasks(
        run_search, more, plan.sweep.executor, plan.sweep.jobs, plan.sweep.address
    ):
        on_found(found)
        groups[found.search.label].append(found)
    for founds in groups.values():
        founds.sort(key=_order)
    return [Group(tuple(founds), unknown[label]) for label, founds in groups.items()]


def _order(found: Found) -> tuple[bool, int, float, int]:
    """The study's own step times first; the same order whichever process came first."""
    search = found.search
    member = -1 if search.member is None else search.member.number
    return not search.is_plain, member, search.step_time_factor, search.seed


def _search(point: Point, question: Question, trim: TrimSection | None) -> Search:
    values = point.file.model_dump(exclude_none=True, exclude={"provenance"})
    slo = Slo(**point.file.slo.model_dump())
    kind: Kind = "rate" if question.find == "rate" else "replicas"
    label = ", ".join(f"{key}={value}" for key, value in point.settings) or point.file.name
    return Search(
        kind,
        label,
        values,
        parse_limits(question.slo, slo),
        point.seed,
        tolerance=question.tolerance,
        most_replicas=question.most_replicas,
        start=question.start,
        trim=trim,
    )


def _run(
    searches: list[Search], plan: Plan, on_probe: Callable[[Search, Probe], object] | None
) -> Iterator[Found]:
    if len(searches) > 1 or on_probe is None:
        sweep = plan.sweep
        yield from run_tasks(run_search, searches, sweep.executor, sweep.jobs, sweep.address)
        return
    (search,) = searches
    yield run_search(search, lambda probe: on_probe(search, probe))


def _refuse_short(founds: Sequence[Found]) -> None:
    for found in founds:
        reason = too_short(found)
        if reason is not None:
            raise StudyError(f"{found.search.label}: {reason}, or --accept-short to see it anyway")


def _unknown(found: Found, question: Question) -> str | None:
    if not question.num_members:
        return "--profile-members 0"
    return unknown_error(resolve_study(found.search.values, "the study"))


def _near_answers(founds: Sequence[Found], question: Question, with_members: bool) -> list[Search]:
    """Searches with other step times, each from the study's own answer with the same seed on."""
    if any(found.at is None for found in founds):
        return []
    near = [replace(f.search, near=f.at.value) for f in founds if f.at is not None]
    error, searches = question.step_time_error, []
    if error is not None:
        searches += [replace(near[0], step_time_factor=f) for f in (1 - error, 1 + error)]
    if with_members:
        count, first = question.num_members, near[0].seed
        searches += [
            replace(near[number % len(near)], member=Member(number, count, first))
            for number in range(count)
        ]
    return searches
