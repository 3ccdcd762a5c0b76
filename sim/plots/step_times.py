"""What a step costs by the size of its batch."""

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize

from sim.metrics import step_length_s
from sim.parquet import ROW_GROUP_ROWS
from sim.plots.sampling import evenly
from sim.plots.style import COLOUR_MAP, MAX_POINTS, log_ticks, marker_area, plain_numbers, say_empty
from sim.rows import num_rows, pieces
from sim.run_result import Columns

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

_FAR = 30
_PIECES_WHOLE, _LEAST_OF_A_PIECE = 40, 64


def plot_step_times(ax: Axes, steps: Columns, at_most: int = MAX_POINTS) -> int:
    """A point a step: its time in ms against its tokens, coloured by the share that is prefill.

    Shown are at most so many steps, half of them with prefill where there are many of both: steps
    of pure decode would otherwise crowd out the rest. Evenly through their order by tokens, so the
    largest and the smallest batches are there. Returns how many.
    """
    ax.set_xlabel("tokens computed in the step")
    ax.set_ylabel("step time (ms)")
    if not num_rows(steps):
        say_empty(ax, "no steps")
        return 0
    steps = _thinned(steps, at_most)
    length_ms = 1e3 * step_length_s(steps)
    shown = _choose(steps, length_ms, at_most)
    tokens = np.maximum(steps["num_tokens"][shown], 1)
    percent = 100 * steps["num_prefill_tokens"][shown] / tokens
    ax.scatter(
        tokens,
        length_ms[shown],
        c=percent,
        cmap=COLOUR_MAP,
        vmin=0,
        vmax=100,
        s=marker_area(len(shown)),
        alpha=0.7,
        linewidths=0,
    )
    _scale(ax, tokens, length_ms[shown])
    # Of a mappable of its own: the points are half transparent, and the bar should not be.
    scale = ScalarMappable(norm=Normalize(0, 100), cmap=COLOUR_MAP)
    bar = ax.figure.colorbar(scale, ax=ax, pad=0.02, aspect=30)
    bar.set_label("prefill share of the tokens (%)")
    return len(shown)


def _thinned(steps: Columns, at_most: int) -> Columns:
    """Of each piece as many steps as may be shown in all, or fewer where pieces are many.

    Still evenly, and few enough to hold and to sort.
    """
    num_pieces = -(-num_rows(steps) // ROW_GROUP_ROWS)
    each = min(at_most, max(_PIECES_WHOLE * at_most // num_pieces, _LEAST_OF_A_PIECE))
    kept = []
    for piece in pieces(steps, ("start_s", "end_s", "num_tokens", "num_prefill_tokens")):
        rows = _choose(piece, step_length_s(piece), each)
        kept.append({name: column[rows] for name, column in piece.items()})
    if len(kept) == 1:
        return kept[0]
    return {name: np.concatenate([part[name] for part in kept]) for name in kept[0]}


def _choose(steps: Columns, length_ms: FloatArray, at_most: int) -> npt.NDArray[np.intp]:
    order = np.lexsort((length_ms, steps["num_tokens"]))
    has_prefill = steps["num_prefill_tokens"][order] > 0
    prefill, decode = order[has_prefill], order[~has_prefill]
    half = at_most // 2
    num_prefill = min(len(prefill), max(half, at_most - len(decode)))
    return np.concatenate([evenly(decode, at_most - num_prefill), evenly(prefill, num_prefill)])


def _scale(ax: Axes, tokens: IntArray, length_ms: FloatArray) -> None:
    """Log where the largest is far from the smallest: a step of 1 token and one of thousands."""
    if tokens.max() > _FAR * tokens.min():
        ax.set_xscale("log", base=2)
    if length_ms.max() > _FAR * length_ms.min() > 0:
        ax.set_yscale("log")
        log_ticks(ax.yaxis)
    else:
        ax.set_ylim(bottom=0)
        plain_numbers(ax.yaxis)
    plain_numbers(ax.xaxis)
