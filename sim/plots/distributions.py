"""How a latency is spread over requests."""

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from sim.metrics.units import three_digits
from sim.plots.sampling import evenly
from sim.plots.style import BLUE, needs_log, plain_numbers, say_empty

FloatArray = npt.NDArray[np.float64]

_MARKED = (50, 90, 99)
_MAX_STAIRS = 2000
_OFF = ", off the axis"


def plot_cdf(ax: Axes, values: FloatArray, name: str, unit: str, colour: str = BLUE) -> None:
    """The share of values at or below x, as a staircase; p50, p90, p99 marked, and max written.

    `values` without NaN, in `unit`. Log x where the tail spans decades. The axis ends a little
    after p99, so that one outlier can't flatten the rest, and a log one begins a little before
    p0.5: a maximum or minimum that lies beyond it is marked as off the axis.
    """
    ax.set_xlabel(f"{name} ({unit})")
    ax.set_ylim(0, 1.02)
    if not len(values):
        say_empty(ax, "no finished\nrequests")
        return
    ordered = np.sort(values)
    shown = evenly(np.arange(len(ordered)), _MAX_STAIRS)
    # The stairs begin on the axis: the share is 0 just below the smallest value.
    x = np.concatenate([ordered[shown[:1]], ordered[shown]])
    share = np.concatenate([[0.0], (shown + 1) / len(ordered)])
    ax.plot(x, share, color=colour, drawstyle="steps-post")
    _scale(ax, ordered)
    _mark_percentiles(ax, ordered, unit, colour)


def _scale(ax: Axes, ordered: FloatArray) -> None:
    low, high = np.percentile(ordered, (0.5, 99))
    right = min(1.5 * high, 1.05 * ordered[-1])
    if needs_log(ordered):
        ax.set_xscale("log")
        ax.set_xlim(low / 1.2, right)
    else:
        ax.set_xlim(0, right or 1.0)
        ax.xaxis.set_major_locator(MaxNLocator(4))
    plain_numbers(ax.xaxis)


def _mark_percentiles(ax: Axes, ordered: FloatArray, unit: str, colour: str) -> None:
    at = np.percentile(ordered, _MARKED)
    ax.plot(at, np.array(_MARKED) / 100, "o", color=colour, markersize=4.5)
    lines = [f"p{p}  {three_digits(x)} {unit}" for p, x in zip(_MARKED, at, strict=True)]
    left, right = ax.get_xlim()
    if ordered[0] < left:
        lines.insert(0, f"min  {three_digits(ordered[0])} {unit}{_OFF}")
    is_off = bool(ordered[-1] > right)
    lines.append(f"max  {three_digits(ordered[-1])} {unit}{_OFF * is_off}")
    ax.set_title("\n".join(lines), fontsize=9.5)
