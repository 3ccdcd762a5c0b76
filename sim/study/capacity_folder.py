"""The folder of a capacity question.

capacity.json      the limits, the answers, every search with its probes, and the study
capacity.csv, .parquet   a row an answer
probes.csv, .parquet     a row a probe
capacity.png       the probes and the answers as a figure
"""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sim.errors import ResultError
from sim.folder_kind import FolderKind
from sim.json_object import read_object
from sim.study.capacity import Found, too_short
from sim.study.capacity_answer import Answer
from sim.study.capacity_run import Group
from sim.study.plan import Plan
from sim.study.point_store import write_atomically
from sim.study.row import Row
from sim.study.sweep_folder import write_table

CAPACITY = FolderKind.CAPACITY.file


def write_capacity(
    folder: Path, plan: Plan, groups: Sequence[Group], answers: Sequence[Answer]
) -> None:
    """Write everything but the figure.

    Raises:
        ResultError: it can't be written, or the folder holds other things.
    """
    refuse_other_things(folder)
    founds = [found for group in groups for found in group.founds]
    limits = founds[0].search.limits
    document = {
        "kind": founds[0].search.kind,
        "limits": [{"metric": limit.metric, "limit": limit.limit} for limit in limits],
        "answers": [
            {**asdict(answer), "sentence": answer.sentence(), "spread_sentence": _words(answer)}
            for answer in answers
        ],
        "warnings": [
            *(text for found in founds if (text := _warning(found)) is not None),
            *dict.fromkeys(text for answer in answers for text in answer.warnings),
        ],
        "searches": [_search(found) for found in founds],
        "study": {**plan.base, "sweep": plan.sweep.model_dump(exclude_none=True)},
    }
    text = json.dumps(_finite(document), indent=2, allow_nan=False, default=str)
    write_atomically(folder / CAPACITY, (text + "\n").encode())
    write_table(folder, [answer.row() for answer in answers], "capacity")
    write_table(folder, probe_rows(groups), "probes")


def refuse_other_things(folder: Path) -> None:
    """Raise ResultError if the folder holds anything but an earlier answer."""
    if folder.exists() and not folder.is_dir():
        raise ResultError(f"{folder}: is a file; name a folder for the answer")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / CAPACITY).exists():
        raise ResultError(f"{folder}: holds other things than a capacity answer; choose another")


def read_capacity(folder: Path) -> dict[str, Any]:
    """What `write_capacity` wrote. Raises ResultError if it can't be read."""
    return read_object(folder / CAPACITY)


def probe_rows(groups: Sequence[Group]) -> list[Row]:
    """Every probe of every search, in the order in which they were made, metrics by their names."""
    return [
        {
            "configuration": found.search.label,
            "seed": found.search.seed,
            "step_times": step_times(found),
            "value": probe.value,
            "arrival_rate_per_s": probe.arrival_rate_per_s,
            **{
                limit.metric: measured
                for limit, measured in zip(found.search.limits, probe.measured, strict=True)
            },
            "meets": probe.is_ok,
            "is_saturated": probe.is_saturated,
            "limited_by": probe.main_limit,
            "num_in_system": probe.num_in_system,
        }
        for group in groups
        for found in group.founds
        for probe in found.probes
    ]


def step_times(found: Found) -> str:
    """Which step times a search ran with: the study's `own`, or others."""
    search = found.search
    if search.member is not None:
        return f"profile {search.member.number + 1} of {search.member.count}"
    return "own" if search.is_plain else f"x {search.step_time_factor:g}"


def _search(found: Found) -> dict[str, Any]:
    search = found.search
    return {
        "configuration": search.label,
        "seed": search.seed,
        "step_times": step_times(found),
        "value": found.value,
        "next_bad": found.next_bad,
        "num_probes": len(found.probes),
    }


def _words(answer: Answer) -> str | None:
    return None if answer.spread is None else answer.spread.sentence()


def _warning(found: Found) -> str | None:
    return too_short(found) if found.search.is_plain else None


def _finite(value: Any) -> Any:
    """The same with None for numbers that JSON can't hold."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
