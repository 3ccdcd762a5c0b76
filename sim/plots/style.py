"""The one look of every figure: colours, type, grid, and files that are the same byte for byte.

Figures are made as objects with an Agg canvas; pyplot and its global state are never used, and the
user's own matplotlib settings have no effect.
"""

import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

# Okabe & Ito, "Color Universal Design" (2008): told apart with any common colour blindness.
BLUE, ORANGE, GREEN, RED, PURPLE, SKY = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#D55E00",
    "#CC79A7",
    "#56B4E9",
)
INK, FAINT = "#222222", "#8A8A8A"
COLOUR_MAP = "cividis"
"""For a quantity shown by colour: even in lightness, and safe for colour blindness."""

DOTS_PER_INCH = 160
WIDTH_IN = 7.2
MAX_POINTS = 5000
"""A scatter shows at most this many points; `evenly` picks them."""

_NOTE_CHARACTERS_PER_IN = 14.6

_SETTINGS: Any = {
    "font.size": 11,
    "axes.labelsize": 11,
    "axes.titlesize": 11.5,
    "axes.titlelocation": "left",
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E3E3E3",
    "grid.linewidth": 0.7,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 10,
    "lines.linewidth": 1.7,
}


@contextmanager
def house_style() -> Iterator[None]:
    """Matplotlib's defaults and our settings, for the figures made inside; then all as before."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_SETTINGS)
        yield


def new_figure(height_in: float, width_in: float = WIDTH_IN) -> Figure:
    """An empty figure with its own canvas, laid out so that nothing overlaps."""
    figure = Figure(figsize=(width_in, height_in), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save_figure(figure: Figure, path: Path) -> None:
    """Write a PNG without date, software or version in it: equal figures give equal bytes."""
    figure.savefig(path, dpi=DOTS_PER_INCH, metadata={"Software": None})


def note(figure: Figure, parts: Sequence[str]) -> None:
    """Small lines under the figure: what was counted, left out, and by which cost model."""
    width = int(_NOTE_CHARACTERS_PER_IN * figure.get_figwidth())
    text = textwrap.fill("; ".join(part for part in parts if part), width)
    figure.supxlabel(text, x=0.01, ha="left", fontsize=8.5, color="#555555")


def legend_above(ax: Axes, columns: int = 4) -> None:
    """A legend over the axes, at the right, where no data can be."""
    ax.legend(
        loc="lower right",
        bbox_to_anchor=(1.0, 1.0),
        ncols=columns,
        borderaxespad=0.1,
        handlelength=1.4,
        columnspacing=1.2,
        markerscale=1.5,
    )


def say_empty(ax: Axes, reason: str) -> None:
    """Axes without data say why, and show no numbers."""
    ax.set_xticks([])
    ax.set_yticks([])
    ax.text(0.5, 0.5, reason, transform=ax.transAxes, ha="center", va="center", color="#555555")


def needs_log(values: npt.NDArray[np.float64], factor: float = 8.0) -> bool:
    """Whether a linear axis as far as p99 would squeeze the lower half of the values."""
    p50, p99 = np.percentile(values, (50, 99))
    return bool(values.min() > 0 and p99 > factor * p50)


def plain_numbers(axis: Axis) -> None:
    """Ticks as 0.01, 5, 20,000: no powers of ten, no offsets."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))


def three_digits(value: float) -> str:
    """A number as 0.0123, 1.5, 12,300: three digits, and no powers of ten."""
    if value == 0 or not np.isfinite(value):
        return f"{value:g}"
    places = 2 - int(np.floor(np.log10(abs(value))))
    shown = 0 if float(value).is_integer() else min(max(places, 0), 6)
    return f"{round(value, places):,.{shown}f}"


def log_ticks(axis: Axis) -> None:
    """Numbers at 1, 2 and 5 of each decade of a log axis that spans few of them."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_minor_locator(NullLocator())
    plain_numbers(axis)


def marker_area(num_points: int) -> float:
    """Marker size for a scatter: larger where there are few."""
    return float(np.clip(4000 / max(num_points, 1), 6, 36))
