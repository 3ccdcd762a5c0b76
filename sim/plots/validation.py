"""Predicted against measured: one panel a metric, and CDFs overlaid."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from sim.plots.style import BLUE, FAINT, GREEN, INK, ORANGE, PURPLE, RED, SKY, new_figure

_COLOURS = (BLUE, RED, GREEN, ORANGE, PURPLE, SKY)
_MARGIN = 1.25
_MANY = 500.0  # a span with more labels than a small panel has room for
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
    """Points on logarithmic axes by region, the diagonal, and a band of relative error `band`.

    `title` ends with the unit in brackets.
    """
    if len(measured):
        low = float(min(measured.min(), predicted.min())) / _MARGIN
        high = float(max(measured.max(), predicted.max())) * _MARGIN
        line = np.array([low, high])
        axes.fill_between(line, line * (1 - band), line * (1 + band), color=FAINT, alpha=0.2, lw=0)
        axes.plot(line, line, color=INK, lw=0.8)
        axes.set_xlim(low, high)
        axes.set_ylim(low, high)
    for colour, region in zip(_COLOURS, sorted({*regions}), strict=False):
        here = np.array([name == region for name in regions])
        axes.plot(measured[here], predicted[here], "o", ms=4, color=colour, label=region, alpha=0.8)
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        _label_plainly(axis, axes.get_xlim())
    unit = title[title.rfind("(") :]
    axes.set_title(title)
    axes.set_xlabel(f"measured {unit}")
    axes.set_ylabel(f"predicted {unit}")
    axes.legend(loc="upper left")


def _label_plainly(axis: Axis, limits: tuple[float, float]) -> None:
    """Plain numbers at 1, 2 and 5 of each decade, or where there are many at 1 alone."""
    is_wide = limits[1] > _MANY * limits[0]
    axis.set_major_locator(LogLocator(subs=(1.0,) if is_wide else (1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


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
