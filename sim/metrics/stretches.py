"""In which steps some requests had a regular gap, known from their first, last and odd tokens."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sim.rows import pieces
from sim.run_result import Columns

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Stretches:
    """Stretches of consecutive emissions of some requests on one replica.

    Each stretch, from a token to a later one, has its regular gaps at every step after the first
    of them up to the other. Stretches begin at the first token and at each irregular gap; they end
    at the last token and at the token before each irregular gap. Counting doesn't care which end
    belongs to which beginning, so both are sorted instants.
    """

    replica: int
    begins_s: FloatArray
    ends_s: FloatArray

    def regular_gaps(self, steps: Columns, before_s: FloatArray) -> IntArray:
        """For each step row, how many regular gaps ended there.

        `before_s`: the end of the step before on its replica, NaN for a first.
        """
        # An instant is known up to the rounding of one difference: it belongs to the nearer step.
        middle_s = (np.asarray(steps["end_s"]) + before_s) / 2
        begun = self.begins_s.searchsorted(middle_s, "right")
        ended = self.ends_s.searchsorted(middle_s, "right")
        is_mine = (np.asarray(steps["replica"]) == self.replica) & ~np.isnan(middle_s)
        return np.where(is_mine, begun - ended, 0)


def stretches_of(
    requests: Columns, chosen: npt.NDArray[np.bool_], steps: Columns, gaps: Columns
) -> list[Stretches]:
    """The stretches of the chosen requests by replica; `gaps` are their irregular ones alone."""
    replica = np.asarray(requests["replica"])[chosen]
    first_s, last_s = (
        np.asarray(requests[name], dtype=np.float64)[chosen]
        for name in ("first_token_s", "last_token_s")
    )
    gap_end_s = _step_ends_s(steps, gaps["replica"], gaps["step"])
    token_before_s = gap_end_s - gaps["gap_s"]
    found = []
    for index in np.unique(replica).tolist():
        mine, my_gaps = replica == index, gaps["replica"] == index
        begins_s = np.concatenate([first_s[mine], gap_end_s[my_gaps]])
        ends_s = np.concatenate([last_s[mine], token_before_s[my_gaps]])
        found.append(Stretches(index, np.sort(begins_s), np.sort(ends_s)))
    return found


def _step_ends_s(
    steps: Columns, replicas: npt.NDArray[Any], numbers: npt.NDArray[Any]
) -> FloatArray:
    """When the steps of these replicas and numbers ended; NaN for one without a row."""
    ends_s = np.full(len(numbers), np.nan)
    if not len(numbers):
        return ends_s
    wanted = {index: np.flatnonzero(replicas == index) for index in np.unique(replicas).tolist()}
    for piece in pieces(steps, ("replica", "step", "end_s")):
        for index, rows in wanted.items():
            here = piece["replica"] == index
            step, end_s = piece["step"][here], piece["end_s"][here]
            at = np.minimum(step.searchsorted(numbers[rows]), max(len(step) - 1, 0))
            hits = step[at] == numbers[rows] if len(step) else np.zeros(len(rows), np.bool_)
            ends_s[rows[hits]] = end_s[at[hits]]
    return ends_s
