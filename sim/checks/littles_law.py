"""Little's law, L = lambda W (Little 1961), between the request rows and the step rows.

Over a window that opens before the first arrival and closes after the last departure it is an
identity: the integral of the number in the system is the sum of the times spent in it, whatever
the arrivals and the order of service. So it holds up to rounding, or the rows are wrong.
"""

import numpy as np
import numpy.typing as npt

from sim.checks.outcome import RELATIVE_ERROR, CheckOutcome, compare
from sim.metrics import is_finished
from sim.rows import StoredRows, num_rows, pieces
from sim.run_result import Columns, RunResult

FloatArray = npt.NDArray[np.float64]

_MEAN_SIDES = (
    "mean number of requests in the system, by arrivals and steps",
    "requests/s x their mean time in it",
)
_WHY_NOT = (
    "replicas decide on a step before it begins (asynchronous scheduling or host overhead), so its "
    "rows do not show who was in the system while it ran"
)


def littles_law(run: RunResult) -> CheckOutcome:
    """Mean number of finished requests in the system = their rate x their mean time in it.

    The left side counts arrivals by requests and departures by steps; the right side is from
    requests alone.
    """
    name = "Little's law"
    finished = is_finished(run.requests)
    if not finished.any():
        return CheckOutcome(name, True, "nothing finished")
    arrival_s = run.requests["arrival_s"][finished]
    sojourn_s = run.requests["last_token_s"][finished] - arrival_s
    ends = (float(piece["end_s"].max()) for piece in pieces(run.steps, ("end_s",)))
    end_s = max([float(arrival_s.max()), *ends])
    window_s = end_s - float(arrival_s.min())
    mean_number = _number_integral(arrival_s, run.steps, end_s) / window_s
    rate_times_mean = len(sojourn_s) / window_s * float(sojourn_s.mean())
    return compare(name, mean_number, rate_times_mean, _MEAN_SIDES)


def littles_law_sampled(run: RunResult) -> CheckOutcome:
    """Running + waiting of each step, over its time = time in the system while steps ran.

    A step sees an arrival if it came before the step began; one at the very beginning it may see
    or not, and when an aborted request left is not recorded. These doubts make the right side a
    range. Only where a step begins when it is scheduled: synchronous, without host overhead.
    """
    name = "number in the system, by steps"
    if isinstance(run.steps, StoredRows):
        return CheckOutcome(name, True, f"left out: {num_rows(run.steps):,} steps are too many")
    fit = [n for n, r in enumerate(run.info.replicas) if r.synchronous and not r.host_overhead]
    if not fit:
        return CheckOutcome(name, True, f"left out: {_WHY_NOT}")
    seen, low, high = 0.0, 0.0, 0.0
    for replica in fit:
        steps = _of_replica(run.steps, replica)
        length_s = steps["end_s"] - steps["start_s"]
        seen += float(((steps["num_running"] + steps["num_waiting"]) * length_s).sum())
        at_least, at_most = _time_in_system(_of_replica(run.requests, replica), steps)
        low, high = low + at_least, high + at_most
    rounding = RELATIVE_ERROR * max(1.0, high)
    off = max(low - seen, seen - high, 0.0)
    detail = (
        f"by steps, (running + waiting) x length sums to {seen:,.9g} request-seconds; by requests, "
        f"their time in the system while steps ran is {low:,.9g} to {high:,.9g}; off by {off:.3g}"
    )
    return CheckOutcome(name, off <= rounding, detail)


def _number_integral(arrival_s: FloatArray, steps: Columns, end_s: float) -> float:
    """Integral up to `end_s` of arrivals so far less completions so far, request-seconds.

    Each arrival adds 1 from its instant on, each completion takes 1 away.
    """
    completed_s = sum(
        float((piece["num_finished"] * (end_s - piece["end_s"])).sum())
        for piece in pieces(steps, ("end_s", "num_finished"))
    )
    return float((end_s - arrival_s).sum()) - completed_s


def _of_replica(rows: Columns, replica: int) -> Columns:
    mine = rows["replica"] == replica
    return {name: column[mine] for name, column in rows.items()}


def _time_in_system(requests: Columns, steps: Columns) -> tuple[float, float]:
    """Least and most request-seconds in which steps of this replica could see these requests."""
    if not len(steps["step"]) or not len(requests["state"]):
        return 0.0, 0.0
    busy_at = _BusyClock(steps)
    arrival_s = requests["arrival_s"]
    early = busy_at.next_start(arrival_s, "left")
    late = busy_at.next_start(arrival_s, "right")
    first_left, last_left = _departure_range(requests, float(steps["end_s"].max()))
    least = np.maximum(busy_at(first_left) - busy_at(late), 0.0)
    most = np.maximum(busy_at(last_left) - busy_at(early), 0.0)
    return float(least.sum()), float(most.sum())


def _departure_range(requests: Columns, end_s: float) -> tuple[FloatArray, FloatArray]:
    """When each request left: known if finished, the end if unfinished, a range if aborted."""
    finished, aborted = is_finished(requests), requests["state"] == "aborted"
    latest = np.where(finished, requests["last_token_s"], end_s)
    known = np.fmax(requests["arrival_s"], requests["last_token_s"])
    return np.where(aborted, known, latest), latest


class _BusyClock:
    """Time that counts only while steps of one synchronous replica run."""

    def __init__(self, steps: Columns):
        order = np.argsort(steps["step"])
        self._start_s = np.asarray(steps["start_s"][order], dtype=np.float64)
        end_s = np.asarray(steps["end_s"][order], dtype=np.float64)
        after = np.cumsum(end_s - self._start_s)
        before = np.concatenate([[0.0], after[:-1]])
        self._times = np.column_stack([self._start_s, end_s]).ravel()
        self._busy = np.column_stack([before, after]).ravel()
        self._end_s = float(end_s[-1])

    def __call__(self, times_s: FloatArray) -> FloatArray:
        """Seconds that steps have run up to these times."""
        return np.asarray(np.interp(times_s, self._times, self._busy), dtype=np.float64)

    def next_start(self, times_s: FloatArray, side: str) -> FloatArray:
        """Beginning of the first step at or after ("left") or after ("right") each time."""
        at = np.searchsorted(self._start_s, times_s, side="left" if side == "left" else "right")
        starts = np.append(self._start_s, self._end_s)
        return np.asarray(starts[at], dtype=np.float64)
