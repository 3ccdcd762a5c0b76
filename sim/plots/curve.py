"""TTFT and TPOT against throughput as load rises."""

from collections.abc import Mapping, Sequence
from pathlib import Path
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
    house_style,
    log_ticks,
    new_figure,
    note,
    plain_numbers,
    save_figure,
)
from sim.run_result import Columns
from sim.wording import number_of

_COLOURS = (BLUE, RED, GREEN, ORANGE, PURPLE, SKY)
_MARKERS = ("o", "s", "^", "D", "v", "P")
_PANELS = ("ttft_mean_s", "ttft_p50_s", "ttft_p99_s", "tpot_mean_s")
_X = "output_tokens_per_s_per_gpu"


def plot_curve(
    ax: Axes,
    lines: Mapping[str, Columns],
    metric: str,
    *,
    scale: float = 1.0,
    limit: float | None = None,
    measured: Columns | None = None,
) -> None:
    """One metric against output tokens a second a GPU: a line a configuration.

    Hollow markers: saturated, the latency grows with the length of the trace. A ring: the knee. The
    dashed line: `limit`, in the metric's own unit before `scale`. Crosses: measured points. Points
    without a throughput (their runs are too short) are left out.
    """
    for index, (label, columns) in enumerate(lines.items()):
        colour, marker = _COLOURS[index % 6], _MARKERS[index % 6]
        is_known = np.isfinite(columns[_X])
        x, y = columns[_X][is_known], scale * columns[metric][is_known]
        ax.plot(x, y, color=colour, linewidth=1.3, label="_")
        hollow = columns["is_saturated"][is_known]
        full = ~hollow
        ax.plot(x[full], y[full], marker, color=colour, markersize=5, label=label)
        ax.plot(x[hollow], y[hollow], marker, color=colour, markersize=5.5, mfc="white", label="_")
        at = columns["is_knee"][is_known]
        ax.plot(x[at], y[at], "o", color=INK, markersize=11, mfc="none", mew=1.3, label="_")
    if measured is not None and metric in measured:
        ax.plot(measured[_X], scale * measured[metric], "x", color=INK, mew=1.6, label="measured")
    ax.set_yscale("log")
    if limit is not None:
        ax.axhline(scale * limit, color=INK, linewidth=1, linestyle="--")
        side: Any = {"transform": ax.get_yaxis_transform(), "ha": "left", "va": "bottom"}
        ax.text(0.01, scale * limit, "SLO", fontsize=9, color=INK, **side)
    _fit_ticks(ax)
    ax.set_xlim(left=0)
    plain_numbers(ax.xaxis)


def _fit_ticks(ax: Axes) -> None:
    low, high = ax.get_ylim()
    if high / low < 4:
        ax.set_ylim(low / 1.3, high * 1.3)
    log_ticks(ax.yaxis)


def curve_figure(
    lines: Mapping[str, Columns],
    *,
    ttft_limit_s: float | None = None,
    tpot_limit_s: float | None = None,
    measured: Columns | None = None,
    has_clients: bool = False,
    notes: Sequence[str] = (),
) -> Figure:
    """TTFT mean, p50 and p99 and TPOT, on one throughput axis; requests a second along the top.

    `has_clients`: the loads are numbers of clients, which the points of the first panel are
    labelled with.
    """
    figure = new_figure(6.6)
    axes = figure.subplots(2, 2, sharex=True)
    units = {name: _unit(lines, name) for name in ("ttft", "tpot")}
    for ax, metric in zip(axes.flat, _PANELS, strict=True):
        limit = tpot_limit_s if metric.startswith("tpot") else ttft_limit_s
        unit = units[metric[:4]]
        plot_curve(ax, lines, metric, scale=unit.scale, limit=limit, measured=measured)
        ax.set_ylabel(f"{metric_words(metric)} ({unit.name})")
    if has_clients:
        _label_clients(axes[0][0], lines, units["ttft"])
    for ax in axes[0]:
        _requests_axis(ax, lines)
    for ax in axes[1]:
        ax.set_xlabel("output tokens / s / GPU")
    handles, labels = axes[0][0].get_legend_handles_labels()
    longest = max(map(len, labels), default=0)
    columns = 1 if longest > 40 else 2 if longest > 18 else 3
    figure.legend(handles, labels, loc="outside upper left", ncols=columns, fontsize=9.5)
    marks = "hollow: saturated; ring: knee (largest throughput / mean TTFT)"
    numbers = "numbers: clients, each with one request at a time" if has_clients else ""
    note(figure, [marks, numbers, _left_out(lines), *notes])
    return figure


def _label_clients(ax: Axes, lines: Mapping[str, Columns], unit: TimeUnit) -> None:
    """The number of clients beside each point, in the colour of its line."""
    ax.margins(y=0.1)  # room for the lowest numbers
    for index, columns in enumerate(lines.values()):
        points = zip(columns["load"], columns[_X], unit.scale * columns[_PANELS[0]], strict=True)
        for clients, x, y in points:
            if np.isfinite(x) and np.isfinite(y):
                ax.annotate(f"{clients:,.0f}", (x, y), xytext=(4, -9), fontsize=8,
                            textcoords="offset points", color=_COLOURS[index % 6])  # fmt: skip


def _unit(lines: Mapping[str, Columns], name: str) -> TimeUnit:
    """One unit for all panels of a latency."""
    shown = [metric for metric in _PANELS if metric.startswith(name)]
    values = [columns[metric] for columns in lines.values() for metric in shown]
    return axis_unit(np.concatenate([np.empty(0), *values]))


def _left_out(lines: Mapping[str, Columns]) -> str:
    count = sum(int((~np.isfinite(columns[_X])).sum()) for columns in lines.values())
    if not count:
        return ""
    return f"{number_of(count, 'point is', 'points are')} left out: too short a run"


def _requests_axis(ax: Axes, lines: Mapping[str, Columns]) -> None:
    """Requests a second a GPU, by the mean output length of all points."""
    if not lines:
        return
    tokens = np.concatenate([c[_X] for c in lines.values()])  # NaN where a run is too short
    requests = np.concatenate([c["requests_per_s_per_gpu"] for c in lines.values()])
    is_known = (tokens > 0) & (requests > 0)
    known = tokens[is_known] / requests[is_known]
    if not len(known):
        return
    length = float(np.median(known))

    def to_requests(x: npt.ArrayLike) -> npt.NDArray[np.float64]:
        return np.asarray(x, dtype=np.float64) / length

    def to_tokens(x: npt.ArrayLike) -> npt.NDArray[np.float64]:
        return np.asarray(x, dtype=np.float64) * length

    top = ax.secondary_xaxis("top", functions=(to_requests, to_tokens))
    top.set_xlabel("requests / s / GPU", fontsize=9.5)
    top.tick_params(labelsize=9)
    top.spines["top"].set_visible(True)
    top.spines["top"].set_color(FAINT)
    plain_numbers(top.xaxis)


def save_curve(figure: Figure, folder: Path) -> list[Path]:
    """Write curve.png and curve.pdf, the same bytes for the same figure."""
    with house_style():
        save_figure(figure, folder / "curve.png")
        figure.savefig(
            folder / "curve.pdf", metadata={"Creator": None, "Producer": None, "CreationDate": None}
        )
    return [folder / "curve.png", folder / "curve.pdf"]
