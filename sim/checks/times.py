"""Time runs forward: within each request, within each step, and from step to step."""

from itertools import pairwise

import numpy as np

from sim.checks.outcome import RELATIVE_ERROR, CheckOutcome, none_bad
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
    """Each step ends no sooner than it begins, and no sooner than the step before it.

    On a synchronous replica no step begins before the one before it has ended.
    """
    s = run.steps
    order = np.lexsort((s["step"], s["replica"]))
    bad = ~(s["start_s"] <= s["end_s"])
    before, after = order[:-1], order[1:]
    same = s["replica"][before] == s["replica"][after]
    synchronous = np.array([replica.synchronous for replica in run.info.replicas], dtype=np.bool_)
    floor = np.where(synchronous[s["replica"][before]], s["start_s"][after], s["end_s"][after])
    bad[after] |= same & ~(s["end_s"][before] <= floor)
    columns = ("replica", "step", "start_s", "end_s")
    return none_bad("steps in order, none over another", s, bad, "steps", columns)
