"""What the cluster held and did as simulated time went on."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes

from sim.metrics import is_finished
from sim.plots.sampling import bin_means, bin_rates
from sim.plots.style import BLUE, GREEN, INK, ORANGE, PURPLE, RED, SKY, legend_above, plain_numbers
from sim.rows import pieces
from sim.run_result import Columns, ReplicaInfo

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TimeBins:
    """Bins of equal width over the run: `edges_s` has one more element than there are bins."""

    edges_s: FloatArray

    @property
    def width_s(self) -> float:
        """Width of each bin, seconds."""
        return float(self.edges_s[1] - self.edges_s[0])

    def draw(self, ax: Axes, values: FloatArray, label: str, colour: str) -> None:
        """Draw a value a bin as a staircase."""
        ax.stairs(values, self.edges_s, baseline=None, color=colour, label=label, linewidth=1.5)


def time_bins(steps: Columns, count: int) -> TimeBins:
    """Bins from time 0 to the end of the last step; `steps` may not be empty."""
    end_s = max(float(piece["end_s"].max()) for piece in pieces(steps, ("end_s",)))
    return TimeBins(np.linspace(0.0, end_s, count + 1))


def per_replica(steps: Columns, column: str, bins: TimeBins, num_replicas: int) -> FloatArray:
    """Time-weighted mean of a step column in each bin (columns), for each replica (rows).

    A replica's steps must be in the order of time and not lie over each other.
    """
    means = np.zeros((num_replicas, len(bins.edges_s) - 1))
    for piece in pieces(steps, ("replica", "start_s", "end_s", column)):
        present = np.flatnonzero(np.bincount(piece["replica"])).tolist()
        for replica in present:
            mine: Any = slice(None) if len(present) == 1 else piece["replica"] == replica
            start_s, end_s = piece["start_s"][mine], piece["end_s"][mine]
            means[replica] += bin_means(bins.edges_s, start_s, end_s, piece[column][mine])
    return means


def rates(steps: Columns, column: str, bins: TimeBins) -> FloatArray:
    """Sum of a step column a second in each bin, each step at its end, in the order of time."""
    edges_s = bins.edges_s
    totals = np.zeros(len(edges_s) - 1)
    for piece in pieces(steps, ("end_s", column)):
        at = np.searchsorted(piece["end_s"], edges_s, "left")
        at[-1] = np.searchsorted(piece["end_s"], edges_s[-1], "right")  # the last bin's own edge
        totals += np.diff(np.concatenate([[0], np.cumsum(piece[column])])[at])
    return np.asarray(totals / np.diff(edges_s), dtype=np.float64)


def plot_running(ax: Axes, steps: Columns, bins: TimeBins, num_replicas: int) -> None:
    """Requests in the running lists of all replicas, mean in each bin."""
    running = per_replica(steps, "num_running", bins, num_replicas)
    bins.draw(ax, running.sum(axis=0), "running", BLUE)
    _label(ax, "running\nrequests")


def plot_waiting(ax: Axes, steps: Columns, bins: TimeBins, num_replicas: int) -> None:
    """Requests in the waiting queues of all replicas, mean in each bin.

    Counted once a step has admitted all that it can: one admitted at once is never among them.
    """
    waiting = per_replica(steps, "num_waiting", bins, num_replicas)
    bins.draw(ax, waiting.sum(axis=0), "left waiting after a step's admissions", RED)
    _label(ax, "waiting\nrequests")
    legend_above(ax)


def plot_kv_usage(
    ax: Axes, steps: Columns, bins: TimeBins, replicas: Sequence[ReplicaInfo]
) -> None:
    """KV blocks in use, % of the usable: mean over replicas, and the fullest and emptiest one."""
    usable = np.array([replica.usable_blocks for replica in replicas], dtype=np.float64)
    used = per_replica(steps, "kv_blocks_used", bins, len(replicas))
    percent = 100 * used / usable[:, None]
    if len(replicas) > 1:
        low, high = percent.min(axis=0), percent.max(axis=0)
        ax.stairs(
            high,
            bins.edges_s,
            baseline=low,
            fill=True,
            color=SKY,
            alpha=0.45,
            label="emptiest to fullest replica",
        )
    mean = 100 * used.sum(axis=0) / usable.sum()
    bins.draw(ax, mean, "mean of replicas" if len(replicas) > 1 else "usage", BLUE)
    _scale_percent(ax, float(percent.max()))
    ax.set_ylabel("KV blocks\nused (%)")
    if len(replicas) > 1:
        legend_above(ax)


def _scale_percent(ax: Axes, peak: float) -> None:
    """Up to 100 with a line at it where use comes near; else only as far as use goes."""
    if peak > 40:
        ax.axhline(100, color=INK, linewidth=0.8, linestyle=":")
        ax.set_ylim(0, 105)
    else:
        ax.set_ylim(0, 1.2 * peak or 1.0)
    plain_numbers(ax.yaxis)


def plot_output_rate(ax: Axes, steps: Columns, bins: TimeBins) -> None:
    """Output tokens a second of all replicas, in each bin."""
    bins.draw(ax, rates(steps, "num_emitted", bins), "output", GREEN)
    _label(ax, "output\ntokens / s")


def plot_request_rates(ax: Axes, requests: Columns, bins: TimeBins) -> None:
    """Arrivals and completions a second, in each bin: apart while a backlog grows or drains."""
    arrived = bin_rates(bins.edges_s, requests["arrival_s"])
    done_s = np.where(is_finished(requests), requests["last_token_s"], np.nan)
    # An area, since in balance the two lines would lie on each other.
    ax.stairs(arrived, bins.edges_s, fill=True, color=ORANGE, alpha=0.45, label="arrived")
    bins.draw(ax, bin_rates(bins.edges_s, done_s), "finished", PURPLE)
    _label(ax, "requests / s")
    legend_above(ax)


def _label(ax: Axes, name: str) -> None:
    """Name the axis and let it begin at 0; all zeros lie on the floor."""
    ax.set_ylabel(name)
    ax.set_ylim(0, max(ax.get_ylim()[1], 1.0))
    plain_numbers(ax.yaxis)
