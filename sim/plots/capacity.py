"""The probes of a capacity search: each limited metric against the rate or the replicas."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sim.metrics.units import TimeUnit, axis_unit, metric_words
from sim.plots.style import (
    BLUE,
    FAINT,
    GREEN,
    INK,
    ORANGE,
    PURPLE,
    RED,
    SKY,
    log_ticks,
    new_figure,
    note,
    plain_numbers,
    say_empty,
)

FloatArray = npt.NDArray[np.float64]
Row = Mapping[str, Any]
_COLOURS = (BLUE, RED, GREEN, ORANGE, PURPLE, SKY)
_MARKERS = ("o", "s", "^", "D", "v", "P")
_FAR = 8


def plot_probes(
    ax: Axes,
    probes: Sequence[Row],
    answers: Sequence[Row],
    metric: str,
    *,
    limit: float | None = None,
    x_key: str = "arrival_rate_per_s",
    unit: TimeUnit | None = None,
) -> None:
    """One metric of every probe, by configuration.

    Args:
        ax: where to draw.
        probes: rows with `configuration`, `step_times`, `meets`, `x_key` and the metric. Those of
            the study's own step times are joined; filled where all limits are met, hollow where
            one is not. Others are small grey points.
        answers: rows with `configuration`, `value`, `low`, `high`: a line and a band.
        metric: a key of the rows.
        limit: drawn dashed.
        x_key: `arrival_rate_per_s` or `value` (replicas).
        unit: of the metric, which the rows have in seconds; None where it has none.
    """
    scale = 1.0 if unit is None else unit.scale
    ax.set_ylabel(metric_words(metric) + ("" if unit is None else f" ({unit.name})"))
    shown = [row for row in probes if row.get(metric) is not None and np.isfinite(row[x_key])]
    if not shown:
        say_empty(ax, "no values")
        return
    other = [row for row in shown if row["step_times"] != "own"]
    ax.plot(_of(other, x_key), scale * _of(other, metric), ".", color=FAINT, ms=4, label="_")
    for index, answer in enumerate(answers):
        name = answer["configuration"]
        own = [r for r in shown if r["step_times"] == "own" and r["configuration"] == name]
        own.sort(key=lambda row: row[x_key])
        meets = np.array([bool(row["meets"]) for row in own], dtype=bool)
        _plot_line(ax, (_of(own, x_key), scale * _of(own, metric), meets), index % 6, name)
        _mark_answer(ax, answer, _COLOURS[index % 6])
    ax.margins(y=0.12)  # room for the word over a limit that nothing reaches
    _scale_axes(ax, shown, x_key, metric)
    if limit is not None:
        ax.axhline(scale * limit, color=INK, linewidth=1, linestyle="--")
        ax.annotate("limit", (0.01, scale * limit), xycoords=ax.get_yaxis_transform(),
                    xytext=(0, 2), textcoords="offset points", fontsize=9, color=INK)  # fmt: skip


def capacity_figure(
    probes: Sequence[Row],
    answers: Sequence[Row],
    limits: Sequence[tuple[str, float]],
    *,
    kind: str = "rate",
    notes: Sequence[str] = (),
) -> Figure:
    """A panel a limit, one under another, on one axis of the rate or of the replicas."""
    figure = new_figure(1.2 + 2.6 * len(limits))
    axes = figure.subplots(len(limits), 1, sharex=True, squeeze=False)[:, 0]
    x_key = "arrival_rate_per_s" if kind == "rate" else "value"
    for ax, (metric, limit) in zip(axes, limits, strict=True):
        known = [row[metric] for row in probes if row.get(metric) is not None]
        unit = axis_unit(np.array([limit, *known])) if metric.endswith("_s") else None
        plot_probes(ax, probes, answers, metric, limit=limit, x_key=x_key, unit=unit)
    axes[-1].set_xlabel("requests / s" if kind == "rate" else "replicas")
    handles, labels = axes[0].get_legend_handles_labels()
    if len(answers) > 1:
        longest = max(map(len, labels), default=0)
        columns = 1 if longest > 40 else 2 if longest > 18 else 3
        figure.legend(handles, labels, loc="outside upper left", ncols=columns, fontsize=9.5)
    marks = "filled: meets every limit; hollow: misses one; line and band: the answer, its interval"
    grey = "grey: with other step times" if any(r["step_times"] != "own" for r in probes) else ""
    note(figure, [marks, grey, *notes])
    return figure


def _plot_line(
    ax: Axes, points: tuple[FloatArray, FloatArray, npt.NDArray[np.bool_]], index: int, name: str
) -> None:
    x, y, meets = points
    colour, marker = _COLOURS[index], _MARKERS[index]
    ax.plot(x, y, color=colour, linewidth=1.1, label="_")
    ax.plot(x[meets], y[meets], marker, color=colour, markersize=5, label=name)
    ax.plot(x[~meets], y[~meets], marker, color=colour, markersize=5.5, mfc="white", label="_")


def _mark_answer(ax: Axes, answer: Row, colour: str) -> None:
    if answer["value"] is None:
        return
    ax.axvline(answer["value"], color=colour, linewidth=1)
    low, high = answer.get("low"), answer.get("high")
    if low is not None and high is not None and np.isfinite(high):
        ax.axvspan(low, high, color=colour, alpha=0.13, linewidth=0)


def _scale_axes(ax: Axes, rows: Sequence[Row], x_key: str, metric: str) -> None:
    for axis, key, name in ((ax.xaxis, x_key, "x"), (ax.yaxis, metric, "y")):
        values = _of(rows, key)
        if values.min() > 0 and values.max() > _FAR * values.min():
            getattr(ax, f"set_{name}scale")("log")
            log_ticks(axis)
        else:
            plain_numbers(axis)


def _of(rows: Sequence[Row], key: str) -> FloatArray:
    return np.array([row[key] for row in rows], dtype=np.float64)
