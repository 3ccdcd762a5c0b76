"""One figure of a sweep over two keys, by colour."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes

from sim.plots.style import COLOUR_MAP, INK, say_empty


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
    """A cell for each pair, `values[row of y, column of x]`, its number in it; NaN stays blank."""
    ax.set_xlabel(x_name)
    ax.set_ylabel(y_name)
    ax.grid(visible=False)
    if not np.isfinite(values).any():
        say_empty(ax, "no values")
        return
    image = ax.imshow(values, cmap=COLOUR_MAP, aspect="auto", origin="lower")
    ax.set_xticks(range(len(x_values)), [str(value) for value in x_values])
    ax.set_yticks(range(len(y_values)), [str(value) for value in y_values])
    middle = np.nanmin(values) + 0.5 * (np.nanmax(values) - np.nanmin(values))
    for (row, column), value in np.ndenumerate(values):
        if np.isfinite(value):
            ink = INK if value > middle else "white"
            ax.text(column, row, f"{value:.3g}", ha="center", va="center", color=ink, fontsize=9)
    ax.figure.colorbar(image, ax=ax, pad=0.02, aspect=30).set_label(name)
