"""Which part of a run is steady: trimming its ends, and a check that says when it is not.

A run begins empty and ends draining; figures of the whole mix both with the state in between.
Trimming keeps requests by their arrival, so a request's whole life counts or none of it.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sim.errors import StudyError
from sim.metrics import is_finished, ttft_s
from sim.metrics.backlog import FEWEST, Backlog, backlog
from sim.metrics.throughput import Window
from sim.run_result import Columns
from sim.study.intervals import batch_means
from sim.study.sweep_section import TrimSection
from sim.wording import number_of

FloatArray = npt.NDArray[np.float64]
_NOTABLE_TRANSIENT = 0.5


def kept_window(requests: Columns, trim: TrimSection | None) -> Window:
    """The stretch of arrivals that trimming leaves; all of it without one.

    Raises:
        StudyError: nothing would be left.
    """
    arrival_s = np.sort(np.asarray(requests["arrival_s"], dtype=np.float64))
    after_all = float(np.nextafter(arrival_s[-1], math.inf))
    if trim is None:
        return Window(float(arrival_s[0]), after_all)
    if trim.by == "time":
        window = Window(arrival_s[0] + trim.start, after_all - trim.end)
    elif trim.by == "count":
        window = _by_count(arrival_s, after_all, int(trim.start), int(trim.end))
    else:
        window = _by_mser(requests, after_all, int(trim.end))
    if not window.holds(arrival_s).any():
        left_of = number_of(len(arrival_s), "request")
        raise StudyError(
            f"trim: by {trim.by}, {trim.start:g} from the start and {trim.end:g} from the end "
            f"leave none of {left_of} over {arrival_s[-1] - arrival_s[0]:g} s"
        )
    return window


def trimmed(requests: Columns, window: Window) -> Columns:
    """The requests that arrived inside the window."""
    inside = window.holds(requests["arrival_s"])
    return {name: column[inside] for name, column in requests.items()}


def _by_count(arrival_s: FloatArray, after_all: float, start: int, end: int) -> Window:
    n = len(arrival_s)
    first = float(arrival_s[start]) if start < n else after_all
    last = float(arrival_s[n - end]) if 0 < end <= n else (after_all if end <= n else first)
    return Window(first, last)


def _by_mser(requests: Columns, after_all: float, end: int) -> Window:
    """The start by MSER-5 on the TTFTs in order of arrival; `end` requests off the tail."""
    order = np.lexsort((requests["request_id"], requests["arrival_s"]))
    order = order[is_finished(requests)[order]]
    if not len(order):
        raise StudyError("trim: by mser needs finished requests, this run has none")
    cut = mser(ttft_s(requests)[order])
    arrival_s = requests["arrival_s"][order]
    last = float(arrival_s[len(order) - end]) if 0 < end <= len(order) - cut else after_all
    return Window(float(arrival_s[cut]), last)


def mser(values: FloatArray, batch: int = 5) -> int:
    """How many leading values to leave out: the cut that leaves the smallest standard error.

    MSER-5 of White, Cobb & Spratt (WSC 2000): over means of five values, minimise
    sum((y - mean)^2) / m^2 of the m means left. Only cuts in the first half count: a minimum
    beyond means that the series never settled.
    """
    num = len(values) // batch
    if num < 4:
        return 0
    means = np.asarray(values[: num * batch], dtype=np.float64).reshape(num, batch).mean(axis=1)
    left = np.arange(num, 0, -1)
    total = np.cumsum(means[::-1])[::-1]
    squares = np.cumsum((means * means)[::-1])[::-1]
    error = np.maximum(squares - total * total / left, 0.0) / (left * left)
    return int(np.argmin(error[: num // 2])) * batch


@dataclass(frozen=True, slots=True)
class Steadiness:
    """Whether a window is steady; `reasons` say why not, one sentence each."""

    is_steady: bool
    reasons: tuple[str, ...]
    backlog: Backlog | None


def steadiness(requests: Columns, window: Window) -> Steadiness:
    """Judge a window of arrivals: enough requests, no growing backlog, TTFT alike in both halves.

    The halves are compared by batch means, at 1 % (Welch's t on the means of batches).
    """
    kept = trimmed(requests, window)
    finished = is_finished(kept)
    count = int(finished.sum())
    if count < FEWEST:
        there = number_of(count, "finished request")
        reason = f"{there} in the window; {FEWEST} are needed to judge it"
        return Steadiness(False, (reason,), None)
    queue = backlog(requests, window)
    reasons = [queue.sentence()] if queue.is_growing else []
    order = np.lexsort((kept["request_id"], kept["arrival_s"]))
    reason = _halves_differ(ttft_s(kept)[order][finished[order]])
    reasons += [reason] if reason else []
    return Steadiness(not reasons, tuple(reasons), queue)


def _halves_differ(values: FloatArray) -> str:
    """Why the halves are not of one steady state; empty if nothing says so."""
    cut = mser(values)
    whole, rest = float(values.mean()), float(values[cut:].mean())
    if cut and abs(whole / rest - 1) > _NOTABLE_TRANSIENT:
        return (
            f"the first {cut:,} requests are a transient (MSER-5): mean TTFT is {whole:.3g} s with "
            f"them and {rest:.3g} s without"
        )
    half = len(values) // 2
    first, second = batch_means(values[:half], 0.99), batch_means(values[half:], 0.99)
    for name, found in (("first", first), ("second", second)):
        if found.correlation_time > half / 10:
            return (
                f"TTFTs of the {name} half are related over a tenth of it: a transient, or a run "
                "too short to judge"
            )
    difference = second.interval.estimate - first.interval.estimate
    reach = math.hypot(first.interval.half_width, second.interval.half_width)
    if abs(difference) <= reach or first.interval.estimate <= 0:
        return ""
    share = difference / first.interval.estimate
    return f"mean TTFT of the second half differs by {share:+.0%} from the first half's"
