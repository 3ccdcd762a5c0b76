"""Where two recordings of one workload differ."""

from __future__ import annotations

import json
from collections.abc import Sequence

from sim.conformance.cases import Row


def first_difference(theirs: Sequence[Row], ours: Sequence[Row]) -> str | None:
    """The first step and field in which two recordings differ; None if there is none."""
    for index in range(max(len(theirs), len(ours))):
        if index >= len(ours):
            return f"step {theirs[index]['step']}: given, but our replay had ended"
        if index >= len(theirs):
            return f"step {ours[index]['step']}: ours goes on after the last given step"
        difference = _row_difference(theirs[index], ours[index])
        if difference is not None:
            return f"step {theirs[index]['step']}: {difference}"
    return None


def _row_difference(theirs: Row, ours: Row) -> str | None:
    for field in (*theirs, *(field for field in ours if field not in theirs)):
        given, made = theirs.get(field), ours.get(field)
        same = given == made
        if same and field == "scheduled" and given is not None:
            same = list(given) == list(ours["scheduled"])
        if not same:
            return f"{field}: given {json.dumps(given)}, ours {json.dumps(made)}"
    return None
