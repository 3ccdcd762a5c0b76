"""One figure of a sweep over two keys, by colour."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize

from sim.plots.style import (
    COLOUR_MAP,
    INK,
    log_ticks,
    plain_numbers,
    say_empty,
    three_digits,
)

_FAR = 8
_DARK_UP_TO = 0.55  # of the colour map, where white can be read better
_NO_VALUE = "#EDEDED"


def plot_heat_map(
    ax: Axes,
    values: npt.NDArray[np.float64],
    x_values: Sequence[object],
    y_values: Sequence[object],
    *,
    x_name: str,
    y_name: str,
    name: str,
) -> None:
    """A cell for each pair, `values[row of y, column of x]`, its number in it; NaN is grey.

    Colours go by the logarithm where the values span more than a factor of eight.
    """
    ax.set_xlabel(x_name)
    ax.set_ylabel(y_name)
    ax.grid(visible=False)
    if not np.isfinite(values).any():
        say_empty(ax, "no values")
        return
    known = values[np.isfinite(values)]
    is_wide = known.min() > 0 and known.max() > _FAR * known.min()
    norm = (LogNorm if is_wide else Normalize)(known.min(), known.max())
    image = ax.imshow(values, cmap=COLOUR_MAP, norm=norm, aspect="auto", origin="lower")
    ax.set_facecolor(_NO_VALUE)
    ax.set_xticks(range(len(x_values)), [str(value) for value in x_values])
    ax.set_yticks(range(len(y_values)), [str(value) for value in y_values])
    ax.tick_params(length=0)
    for (row, column), value in np.ndenumerate(values):
        is_known = bool(np.isfinite(value))
        is_dark = is_known and norm(value) <= _DARK_UP_TO
        ax.text(
            column,
            row,
            three_digits(float(value)) if is_known else "-",
            ha="center",
            va="center",
            color="white" if is_dark else INK,
            fontsize=9,
        )
    bar = ax.figure.colorbar(image, ax=ax, pad=0.02, aspect=30)
    bar.set_label(name)
    if is_wide:
        log_ticks(bar.ax.yaxis)
    else:
        plain_numbers(bar.ax.yaxis)
