"""Why the steady window of a run is not steady: too few lives, a backlog, or a batch that fills."""

import math

import numpy as np

from sim.metrics.backlog import FEWEST, backlog, in_system
from sim.metrics.latency import e2e_s, finished_values, is_finished
from sim.metrics.throughput import Window
from sim.run_result import Columns

LIVES_TO_WARM_UP = 4
"""A run's steady window begins after a quarter of its arrivals: after one life, if there are four.
"""

_NOTABLE_CHANGE = 0.05
_CERTAIN = 2.0  # standard deviations


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


def unsettled(requests: Columns, window: Window) -> str:
    """Why what leaves within a window is not what arrives in it; empty if nothing says so.

    Arrivals less completions are the change of the number in the system. Where that is more than
    5 % of the arrivals, so far are the window's rates from lasting ones. By chance the number
    changes by sqrt(2 N) or so (its ends are Poisson where requests don't wait for each other).
    """
    before, after = in_system(requests, np.array([window.start_s, window.end_s]))
    num_arrivals = int(window.holds(requests["arrival_s"]).sum())
    change = abs(after - before)
    by_chance = _CERTAIN * math.sqrt(2 * max(before, after))
    if change <= _NOTABLE_CHANGE * num_arrivals or change <= by_chance:
        return ""
    return (
        f"requests in the system go from {before:,.0f} to {after:,.0f} within the steady window, "
        f"in which {num_arrivals:,} arrive: a longer run is needed to tell what would last"
    )


def not_steady(requests: Columns, load: str, window: Window) -> str | None:
    """Why the steady window, the middle half of the arrivals, is none; None if nothing says so.

    `load` as in `RunInfo`. The backlog is judged from a hundred finished requests on.
    """
    if int(is_finished(requests).sum()) >= FEWEST:
        arrival_s = np.asarray(requests["arrival_s"], dtype=np.float64)
        after_all = float(np.nextafter(arrival_s.max(), math.inf))
        queue = backlog(requests, Window(float(arrival_s.min()), after_all))
        if queue.is_growing:
            return queue.sentence()
    short = too_short(requests) if load == "open" else ""
    return short or unsettled(requests, window) or None
