"""How long requests waited for their first token, by when they arrived."""

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes

from sim.metrics import is_finished, ttft_s
from sim.metrics.units import axis_unit
from sim.plots.sampling import bin_percentiles, evenly
from sim.plots.style import (
    BLUE,
    INK,
    MAX_POINTS,
    RED,
    SKY,
    legend_above,
    log_ticks,
    marker_area,
    needs_log,
    plain_numbers,
    say_empty,
)
from sim.run_result import Columns

FloatArray = npt.NDArray[np.float64]


def plot_ttft_over_arrival(ax: Axes, requests: Columns, at_most: int = MAX_POINTS) -> int:
    """A point a finished request, and p50 and p99 of all of them by stretch of arrival time.

    Requests that did not finish are ticks on the floor. Returns how many points are shown.
    """
    ax.set_xlabel("arrival (s)")
    finished = np.flatnonzero(is_finished(requests))
    if not len(finished):
        ax.set_ylabel("TTFT (s)")
        say_empty(ax, "no finished requests")
        return 0
    arrival, ttft = requests["arrival_s"][finished], ttft_s(requests)[finished]
    unit = axis_unit(ttft)
    ax.set_ylabel(f"TTFT ({unit.name})")
    ttft = unit.scale * ttft
    shown = evenly(np.argsort(arrival, kind="stable"), at_most)
    area = marker_area(len(shown))
    ax.scatter(arrival[shown], ttft[shown], s=area, color=SKY, alpha=0.7, lw=0, label="request")
    _scale(ax, requests["arrival_s"], ttft)
    _draw_percentiles(ax, arrival, ttft)
    _mark_others(ax, requests)
    legend_above(ax)
    return len(shown)


def _scale(ax: Axes, arrival: FloatArray, ttft: FloatArray) -> None:
    end_s = float(arrival.max()) or 1.0
    ax.set_xlim(-0.02 * end_s, 1.02 * end_s)
    if needs_log(ttft):
        ax.set_yscale("log")
        log_ticks(ax.yaxis)
    else:
        ax.set_ylim(bottom=0)
        plain_numbers(ax.yaxis)
    plain_numbers(ax.xaxis)


def _draw_percentiles(ax: Axes, arrival: FloatArray, ttft: FloatArray) -> None:
    """Lines of p50 and p99, where each stretch has enough requests for them to mean something."""
    num_bins = min(40, len(arrival) // 200)
    if num_bins < 5 or arrival.max() <= arrival.min():
        return
    edges = np.linspace(arrival.min(), arrival.max(), num_bins + 1)
    p50, p99 = bin_percentiles(edges, arrival, ttft, (50, 99))
    middle = (edges[1:] + edges[:-1]) / 2
    ax.plot(middle, p50, color=BLUE, label="p50")
    ax.plot(middle, p99, color=RED, label="p99")


def _mark_others(ax: Axes, requests: Columns) -> None:
    other_s = requests["arrival_s"][~is_finished(requests)]
    if not len(other_s):
        return
    floor = np.full(len(other_s), 0.012)
    ax.plot(
        other_s,
        floor,
        "|",
        color=INK,
        markersize=5,
        transform=ax.get_xaxis_transform(),
        label=f"not finished ({len(other_s):,})",
    )
