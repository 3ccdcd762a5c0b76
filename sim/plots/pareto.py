"""Cost against latency: every setting, and those that no other one beats in both."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes

from sim.plots.style import FAINT, RED, legend_above, log_ticks, plain_numbers, say_empty

FloatArray = npt.NDArray[np.float64]
_FAR = 6


def plot_pareto(
    ax: Axes,
    cost: FloatArray,
    latency: FloatArray,
    front: npt.NDArray[np.intp],
    labels: Sequence[str] = (),
    *,
    cost_name: str = "GPUs",
    latency_name: str = "TTFT p99 (s)",
) -> None:
    """A point a setting; the front (row numbers by rising cost) as stairs, its points labelled.

    `cost` and `latency` are in the units that their names say.
    """
    ax.set_xlabel(cost_name)
    ax.set_ylabel(latency_name)
    if not len(front):
        say_empty(ax, "no settings")
        return
    known = np.isfinite(cost) & np.isfinite(latency)
    ax.plot(cost[known], latency[known], "o", color=FAINT, markersize=4, label="other settings")
    ax.plot(cost[front], latency[front], color=RED, drawstyle="steps-post", label="_")
    ax.plot(cost[front], latency[front], "o", color=RED, label="on the front")
    for row, label in zip(front, labels, strict=False):
        ax.annotate(label, (cost[row], latency[row]), xytext=(6, 5), fontsize=8.5,
                    textcoords="offset points")  # fmt: skip
    if latency[known].min() > 0 and latency[known].max() > _FAR * latency[known].min():
        ax.set_yscale("log")
        log_ticks(ax.yaxis)
    else:
        ax.set_ylim(bottom=0)
        plain_numbers(ax.yaxis)
    ax.margins(x=0.12)
    plain_numbers(ax.xaxis)
    legend_above(ax)
