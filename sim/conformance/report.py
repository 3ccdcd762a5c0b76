"""Replays a file of cases and counts, by family, how many are identical."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sim.conformance.cases import Case, family_of, read_cases, write_cases
from sim.conformance.compare import first_difference
from sim.conformance.replay import replay_case


@dataclass(frozen=True, slots=True)
class CaseOutcome:
    """What became of one case. `difference` is None if every step given is identical."""

    name: str
    num_steps: int
    compared: bool
    difference: str | None


@dataclass(frozen=True, slots=True)
class ConformanceReport:
    """Outcomes of all cases of a file, in its order."""

    outcomes: tuple[CaseOutcome, ...]

    @property
    def num_identical(self) -> int:
        """Cases whose steps were given and are all identical."""
        return sum(o.compared and o.difference is None for o in self.outcomes)

    @property
    def num_compared(self) -> int:
        """Cases whose steps were given."""
        return sum(o.compared for o in self.outcomes)

    @property
    def by_family(self) -> dict[str, tuple[int, int]]:
        """Family -> (identical, compared)."""
        families: dict[str, tuple[int, int]] = {}
        for outcome in self.outcomes:
            if outcome.compared:
                family = family_of(outcome.name)
                identical, compared = families.get(family, (0, 0))
                families[family] = (identical + (outcome.difference is None), compared + 1)
        return families


def replay_file(path: Path, emit: Path | None = None) -> ConformanceReport:
    """Replay every case of a JSONL file (plain or .gz) and compare where steps are given.

    `emit` names a file (.gz compresses it) for the cases with our steps in place of theirs; it is
    written to a temporary name and renamed at the end. Raises `ConformanceError`.
    """
    outcomes: list[CaseOutcome] = []
    emitted: list[Case] = []
    for case in read_cases(path):
        steps = replay_case(case)
        given = case.get("steps")
        difference = None if given is None else first_difference(given, steps)
        outcomes.append(CaseOutcome(case["name"], len(steps), given is not None, difference))
        if emit is not None:
            emitted.append({**case, "steps": steps})
    if emit is not None:
        write_cases(emit, emitted)
    return ConformanceReport(tuple(outcomes))
