"""Whether the number of requests in the system grows without end: overload, not a transient.

Below capacity the backlog first rises and then wanders about a level; beyond it, it rises by
arrivals less completions as long as requests arrive. So the trend of the later part decides.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sim.metrics.latency import is_finished
from sim.metrics.throughput import Window
from sim.run_result import Columns

FloatArray = npt.NDArray[np.float64]

FEWEST = 100
"""Finished requests that are needed to judge a trend."""

_SAMPLES = 240
_LATER = 0.4  # the trend is taken after this share of the window
_NOTABLE_SHARE = 0.02
_CERTAIN = 2.5  # standard errors
_INCREMENTS = 24
_AT_ONCE_S = 1e-6  # in less time arrivals are one burst, and have no trend


@dataclass(frozen=True, slots=True)
class Backlog:
    """The trend of the number in the system over the later part of a window.

    Args:
        drift_per_s: requests a second by which it grows.
        drift_share: the same as a share of the arrival rate there.
        is_growing: by more than 2 % of the arrivals and more than 2.5 standard errors.
        mean_in_system: over the later part.
    """

    drift_per_s: float
    drift_share: float
    is_growing: bool
    mean_in_system: float

    def sentence(self) -> str:
        """The growth in words."""
        return (
            f"the backlog grows by {self.drift_per_s:.3g} requests a second, "
            f"{100 * self.drift_share:.1f} % of the arrivals: load beyond capacity"
        )


def in_system(requests: Columns, times_s: FloatArray) -> FloatArray:
    """Requests that have arrived and not left at each time; refused ones never count."""
    admitted = requests["state"] != "rejected"
    arrived = np.sort(np.asarray(requests["arrival_s"][admitted], dtype=np.float64))
    left_s = np.asarray(requests["last_token_s"], dtype=np.float64)
    left = np.sort(left_s[admitted & is_finished(requests)])
    counts = np.searchsorted(arrived, times_s, "right") - np.searchsorted(left, times_s, "right")
    return np.asarray(counts, dtype=np.float64)


def backlog(requests: Columns, window: Window) -> Backlog:
    """The trend over the window's later part, by least squares.

    Its standard error is that of a queue just at capacity, the hardest case: there the number in
    the system is a random walk, whose fitted slope over T seconds has the variance 6/5 of the
    walk's variance a second / T. A stable queue's slope varies less.
    """
    start_s = window.start_s + _LATER * window.length_s
    length_s = window.end_s - start_s
    if length_s < _AT_ONCE_S:
        return Backlog(0.0, 0.0, False, 0.0)
    times_s = np.linspace(start_s, window.end_s, _SAMPLES)
    number = in_system(requests, times_s)
    centred = times_s - times_s.mean()
    slope = float((centred * number).sum() / (centred * centred).sum())
    num_arrivals = int(Window(start_s, window.end_s).holds(requests["arrival_s"]).sum())
    share = slope * length_s / num_arrivals if num_arrivals else 0.0
    is_growing = share > _NOTABLE_SHARE and slope > _CERTAIN * _slope_error(number, length_s)
    return Backlog(slope, share, is_growing, float(number.mean()))


def _slope_error(number: FloatArray, length_s: float) -> float:
    increments = np.diff(number[:: _SAMPLES // _INCREMENTS])
    seconds = length_s * (_SAMPLES // _INCREMENTS) / (_SAMPLES - 1)
    return math.sqrt(1.2 * float(increments.var(ddof=1)) / seconds / length_s)


def backlog_warnings(requests: Columns) -> tuple[str, ...]:
    """What a reader of an open load's latencies should know: that they grow with the trace.

    No figures in it: the points of a sweep that are so are to say one thing.
    """
    if int(is_finished(requests).sum()) < FEWEST:
        return ()
    arrival_s = requests["arrival_s"]
    after_all = float(np.nextafter(arrival_s.max(), math.inf))
    if not backlog(requests, Window(float(arrival_s.min()), after_all)).is_growing:
        return ()
    return (
        "requests pile up as long as they arrive: more come than are served, or the trace is too "
        "short to tell; TTFT, queue time and E2E depend on how long it is",
    )
