"""Why the steady window of a run is not steady: too few lives, or a backlog that grows."""

import math

import numpy as np

from sim.metrics.backlog import FEWEST, backlog
from sim.metrics.latency import e2e_s, finished_values, is_finished
from sim.metrics.throughput import Window
from sim.run_result import Columns

LIVES_TO_WARM_UP = 4
"""A run's steady window begins after a quarter of its arrivals: after one life, if there are four.
"""


def too_short(requests: Columns) -> str:
    """Why the arrivals of an open load are over too soon for a steady window; empty if they last.

    They must last four mean E2Es, or the window has part of the filling.
    """
    arrival_s = requests["arrival_s"]
    span_s = float(arrival_s.max() - arrival_s.min())
    whole_s = finished_values(requests, e2e_s(requests))
    mean_s = float(whole_s.mean()) if len(whole_s) else 0.0
    if span_s >= LIVES_TO_WARM_UP * mean_s:
        return ""
    return (
        f"arrivals last {span_s:.3g} s, less than {LIVES_TO_WARM_UP} times the mean E2E of "
        f"{mean_s:.3g} s"
    )


def not_steady(requests: Columns, load: str) -> str | None:
    """Why the middle half of the arrivals is no steady state; None if nothing says so.

    `load` as in `RunInfo`. The backlog is judged from a hundred finished requests on.
    """
    if int(is_finished(requests).sum()) >= FEWEST:
        arrival_s = np.asarray(requests["arrival_s"], dtype=np.float64)
        after_all = float(np.nextafter(arrival_s.max(), math.inf))
        queue = backlog(requests, Window(float(arrival_s.min()), after_all))
        if queue.is_growing:
            return queue.sentence()
    return (too_short(requests) if load == "open" else "") or None
