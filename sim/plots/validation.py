"""Predicted against measured: one panel a metric, and CDFs overlaid."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sim.plots.style import BLUE, FAINT, GREEN, INK, ORANGE, PURPLE, RED, SKY, log_ticks, new_figure

_COLOURS = (BLUE, RED, GREEN, ORANGE, PURPLE, SKY)
_MARGIN = 1.25
_FAR = 1000  # farther apart the ends of an axis are told in powers of ten
FloatArray = npt.NDArray[np.float64]


def plot_predicted_over_measured(
    axes: Axes,
    measured: FloatArray,
    predicted: FloatArray,
    regions: Sequence[str],
    *,
    title: str,
    band: float,
) -> None:
    """Points on logarithmic axes by region, the diagonal, and a band of relative error `band`."""
    if len(measured):
        low = float(min(measured.min(), predicted.min())) / _MARGIN
        high = float(max(measured.max(), predicted.max())) * _MARGIN
        line = np.array([low, high])
        axes.fill_between(line, line * (1 - band), line * (1 + band), color=FAINT, alpha=0.2, lw=0)
        axes.plot(line, line, color=INK, lw=0.8)
        axes.set_xlim(low, high)
        axes.set_ylim(low, high)
    for colour, region in zip(_COLOURS, dict.fromkeys(regions), strict=False):
        here = np.array([name == region for name in regions])
        axes.plot(measured[here], predicted[here], "o", ms=4, color=colour, label=region, alpha=0.8)
    axes.set_xscale("log")
    axes.set_yscale("log")
    if len(measured) and high < _FAR * low:
        log_ticks(axes.xaxis)
        log_ticks(axes.yaxis)
    axes.set_title(title)
    axes.set_xlabel("measured")
    axes.set_ylabel("predicted")
    axes.legend(loc="upper left")


def validation_figure(
    panels: Sequence[tuple[str, FloatArray, FloatArray, Sequence[str]]], band: float
) -> Figure:
    """One panel for each (title, measured, predicted, regions)."""
    figure = new_figure(3.8)
    for axes, (title, measured, predicted, regions) in zip(
        np.atleast_1d(figure.subplots(1, len(panels))), panels, strict=True
    ):
        plot_predicted_over_measured(axes, measured, predicted, regions, title=title, band=band)
    return figure


def cdf_pairs_figure(panels: Sequence[tuple[str, FloatArray, FloatArray]]) -> Figure:
    """For each (title, measured, predicted) both CDFs in one panel."""
    figure = new_figure(3.4)
    for axes, (title, measured, predicted) in zip(
        np.atleast_1d(figure.subplots(1, len(panels), sharey=True)), panels, strict=True
    ):
        for values, colour, label in ((measured, INK, "measured"), (predicted, BLUE, "predicted")):
            known = np.sort(values[np.isfinite(values)])
            share = np.arange(1, len(known) + 1) / max(len(known), 1)
            axes.step(known, share, where="post", color=colour, label=label)
        axes.set_title(title)
        axes.set_xlabel("s")
    figure.axes[0].set_ylabel("share of requests")
    figure.axes[0].legend(loc="lower right")
    return figure
