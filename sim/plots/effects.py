"""Changes from A to B with their intervals, a line a metric."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from sim.plots.style import FAINT, GREEN, INK, RED, plain_numbers, say_empty


def plot_effects(ax: Axes, effects: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> None:
    """The relative changes in %: green better in B, red worse, grey no difference shown.

    `effects` are rows of `sim.study.compare.effect_rows`; changes that are not relative, or have
    no finite interval, are left out.
    """
    shown = [(row, label) for row, label in zip(effects, labels, strict=True) if _can_show(row)]
    ax.set_xlabel("change from A to B (%)")
    if not shown:
        say_empty(ax, "no relative changes with an interval")
        return
    for place, (row, _) in enumerate(reversed(shown)):
        better = row["is_better"]
        colour = FAINT if better is None else GREEN if better else RED
        ends = [100 * row["low"], 100 * row["high"]]
        ax.plot(ends, [place, place], color=colour, linewidth=2.4, solid_capstyle="butt")
        ax.plot(100 * row["change"], place, "o", color=colour, markersize=6)
    ax.axvline(0, color=INK, linewidth=0.9)
    ax.set_yticks(range(len(shown)), [label for _, label in reversed(shown)])
    ax.set_ylim(-0.6, len(shown) - 0.4)
    ax.grid(visible=False, axis="y")
    plain_numbers(ax.xaxis)


def _can_show(row: Mapping[str, Any]) -> bool:
    ends = (row["low"], row["high"])
    return bool(row["is_relative"]) and all(e is not None and np.isfinite(e) for e in ends)
