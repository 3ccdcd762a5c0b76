"""CDFs of a measured result and a run over each other."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from sim.overlay import Overlay, Sample
from sim.plots.sampling import evenly
from sim.plots.style import (
    BLUE,
    ORANGE,
    house_style,
    legend_above,
    needs_log,
    new_figure,
    note,
    plain_numbers,
    save_figure,
)

_MAX_STAIRS = 2000


def save_overlay_plot(found: Overlay, path: Path) -> None:
    """Draw a panel a metric into a PNG."""
    with house_style():
        num_rows = -(-len(found.samples) // 2)
        figure = new_figure(2.4 * num_rows + 0.4)
        panels = figure.subplots(num_rows, 2, squeeze=False).ravel()
        for panel, (name, sample) in zip(panels, found.samples.items(), strict=False):
            plot_both(panel, name, sample)
        for panel in panels[len(found.samples) :]:
            panel.set_axis_off()
        legend_above(panels[0])
        note(figure, [f"{found.measured.tool}: {Path(found.measured.name).name}", *found.notes[:1]])
        save_figure(figure, path)


def plot_both(ax: Axes, name: str, sample: Sample) -> None:
    """The share of values at or below x, measured and simulated."""
    counts = np.ones(len(sample.measured), dtype=np.int64)
    _stairs(ax, sample.measured, counts, ORANGE, "measured")
    ours = sample.simulated_counts
    counts = np.ones(len(sample.simulated), dtype=np.int64) if ours is None else ours
    _stairs(ax, sample.simulated, counts, BLUE, "simulated")
    ax.set_xlabel(name)
    ax.set_ylim(0, 1.02)
    if needs_log(sample.measured):
        ax.set_xscale("log")
    plain_numbers(ax.xaxis)


def _stairs(ax: Axes, values: np.ndarray, counts: np.ndarray, colour: str, label: str) -> None:
    if not len(values):
        return
    order = np.argsort(values, kind="stable")
    share = np.cumsum(counts[order]) / counts.sum()
    shown = evenly(np.arange(len(order)), _MAX_STAIRS)
    ax.plot(values[order][shown], share[shown], drawstyle="steps-post", color=colour, label=label)
