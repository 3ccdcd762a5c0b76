"""Time runs forward: within each request, within each step, and from step to step."""

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from sim.checks.outcome import RELATIVE_ERROR, CheckOutcome, Tally, none_bad
from sim.rows import pieces
from sim.run_result import RunResult
from sim.time_split import Cause


def request_times(run: RunResult) -> CheckOutcome:
    """Arrival <= first scheduled <= first token <= last token, each there once the next one is."""
    r = run.requests
    columns = ("arrival_s", "first_scheduled_s", "first_token_s", "last_token_s")
    bad = np.isnan(r["arrival_s"])
    for earlier, later in pairwise(columns):
        happened = ~np.isnan(r[later])
        # Written so that a later time without its earlier one (NaN) is bad as well.
        bad |= happened & ~(r[earlier] <= r[later])
    return none_bad("request times in order", r, bad, "requests", ("request_id", *columns))


def split_sums(run: RunResult) -> CheckOutcome:
    """The time of each finished request by cause, which must be recorded, sums to its E2E."""
    r = run.requests
    total_s = np.sum([r[cause.column] for cause in Cause], axis=0)
    whole_s = r["last_token_s"] - r["arrival_s"]
    bad = (r["state"] == "finished") & ~np.isclose(total_s, whole_s, RELATIVE_ERROR, RELATIVE_ERROR)
    columns = ("request_id", "arrival_s", "last_token_s", *(cause.column for cause in Cause))
    return none_bad("time by cause sums to E2E", r, bad, "requests", columns)


def times_fit_state(run: RunResult) -> CheckOutcome:
    """A finished request has a last token; a rejected one was never scheduled."""
    r = run.requests
    bad = (r["state"] == "finished") & np.isnan(r["last_token_s"])
    bad |= (r["state"] == "rejected") & ~np.isnan(r["first_scheduled_s"])
    columns = ("request_id", "state", "first_scheduled_s", "last_token_s")
    return none_bad("request times fit their state", r, bad, "requests", columns)


def step_times(run: RunResult) -> CheckOutcome:
    """Each step ends no sooner than it begins, and no sooner than the row before it.

    On a replica, steps are numbered from 0, and on a synchronous one no step begins before the one
    before it has ended.
    """
    columns = ("replica", "step", "start_s", "end_s")
    tally = Tally("steps in order, none over another", "steps", columns)
    last_end_s, last = -np.inf, _LastSteps(len(run.info.replicas))
    for piece in pieces(run.steps, columns):
        bad = ~(piece["start_s"] <= piece["end_s"])
        bad |= ~(np.concatenate([[last_end_s], piece["end_s"][:-1]]) <= piece["end_s"])
        last_end_s = float(piece["end_s"][-1])
        for replica in np.unique(piece["replica"]).tolist():
            mine = np.flatnonzero(piece["replica"] == replica)
            step, end_s = last.before(replica, piece["step"][mine], piece["end_s"][mine])
            bad[mine] |= piece["step"][mine] != step + 1
            if run.info.replicas[replica].synchronous:
                bad[mine] |= ~(end_s <= piece["start_s"][mine])
        tally.add(piece, bad)
    return tally.outcome()


class _LastSteps:
    """The last step of each replica, from one piece of the rows to the next."""

    def __init__(self, num_replicas: int) -> None:
        self._step = np.full(num_replicas, -1)
        self._end_s = np.full(num_replicas, -np.inf)

    def before(
        self, replica: int, step: npt.NDArray[Any], end_s: npt.NDArray[Any]
    ) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Number and end of the step before each of these on their replica."""
        steps_before = np.concatenate([[self._step[replica]], step[:-1]])
        ends_before_s = np.concatenate([[self._end_s[replica]], end_s[:-1]])
        self._step[replica], self._end_s[replica] = step[-1], end_s[-1]
        return steps_before, ends_before_s
