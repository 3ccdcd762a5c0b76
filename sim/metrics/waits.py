"""Where the time of requests went, and who was left waiting; of runs with `engine.explain`."""

from typing import Any

import numpy as np
import numpy.typing as npt

from sim.metrics.latency import is_finished
from sim.metrics.stats import stats_of
from sim.metrics.throughput import share
from sim.run_result import Columns
from sim.time_split import WAITS, Cause

FloatArray = npt.NDArray[np.float64]


def time_split(requests: Columns) -> dict[str, Any] | None:
    """Shares of the E2E of finished requests by cause, and waits by priority; None if unrecorded.

    `waits` has one entry a priority, most urgent first, over requests that were not rejected; of
    unfinished ones it counts what they waited until the run stopped.
    """
    if not has_split(requests):
        return None
    finished = is_finished(requests)
    spent_s = {cause: float(requests[cause.column][finished].sum()) for cause in Cause}
    whole_s = sum(spent_s.values())
    let_in = requests["state"] != "rejected"
    kept = {name: column[let_in] for name, column in requests.items()}
    return {
        "shares": {c.name.lower(): share(spent_s[c], whole_s) for c in Cause},
        "waits": [_waits_of(kept, int(p)) for p in np.unique(kept["priority"])],
    }


def has_split(requests: Columns) -> bool:
    """Whether the run recorded the split."""
    return Cause.NEXT_STEP.column in requests


def wait_s(requests: Columns) -> FloatArray:
    """Seconds in which a request was in the system and nothing was computed for it."""
    parts_s: FloatArray = np.array([requests[cause.column] for cause in WAITS], dtype=np.float64)
    total_s: FloatArray = parts_s.sum(axis=0)
    return total_s


def _waits_of(requests: Columns, priority: int) -> dict[str, Any]:
    mine = requests["priority"] == priority
    waits_s = wait_s(requests)[mine]
    stats = stats_of(waits_s)
    whole_s = sum(float(requests[cause.column][mine].sum()) for cause in Cause)
    never = mine & np.isnan(requests["first_scheduled_s"])
    return {
        "priority": priority,
        "requests": int(mine.sum()),
        "never_scheduled_requests": int(never.sum()),
        "wait_mean_s": stats["mean"],
        "wait_p99_s": stats["p99"],
        "wait_max_s": stats["max"],
        "wait_share": share(float(waits_s.sum()), whole_s),
        "longest_wait_request_id": int(requests["request_id"][mine][int(waits_s.argmax())]),
    }
