"""A latency by class of requests, as bars."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes

from sim.plots.style import BLUE, ORANGE, RED, legend_above, log_ticks, plain_numbers, say_empty

FloatArray = npt.NDArray[np.float64]
_COLOURS = (BLUE, ORANGE, RED)
_FAR = 20


def plot_class_bars(
    ax: Axes,
    values: Mapping[str, FloatArray],
    name: str,
    percents: Sequence[int] = (50, 90, 99),
) -> None:
    """Bars of percentiles for each class; a class is a name and the values of its requests."""
    ax.set_ylabel(name)
    groups = {label: v[~np.isnan(v)] for label, v in values.items()}
    groups = {label: v for label, v in groups.items() if len(v)}
    if not groups:
        say_empty(ax, "no finished requests")
        return
    table = np.array([np.percentile(v, percents) for v in groups.values()])
    width = 0.8 / len(percents)
    for index, percent in enumerate(percents):
        at = np.arange(len(groups)) + (index - (len(percents) - 1) / 2) * width
        ax.bar(at, table[:, index], width, color=_COLOURS[index % 3], label=f"p{percent}")
    ax.set_xticks(range(len(groups)), [f"{k}\n{len(v):,}" for k, v in groups.items()])
    ax.grid(visible=False, axis="x")
    if table.min() > 0 and table.max() > _FAR * table.min():
        ax.set_yscale("log")
        log_ticks(ax.yaxis)
    else:
        plain_numbers(ax.yaxis)
    legend_above(ax)
