"""What batches were made of as time went on, and when requests were thrown back to the queue."""

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes

from sim.plots.over_time import TimeBins, plot_kv_usage
from sim.plots.style import BLUE, INK, ORANGE, RED, legend_above, plain_numbers, say_empty
from sim.run_result import Columns, ReplicaInfo

FloatArray = npt.NDArray[np.float64]


def plot_batch_composition(
    ax: Axes, steps: Columns, bins: TimeBins, budget: int | None = None
) -> None:
    """Tokens of a step, decode below and prefill on top: the mean of the steps in each bin.

    The dotted line is the token budget, where batches come near it. Bins without a step are empty.
    """
    ax.set_ylabel("tokens a step")
    if not len(steps["step"]):
        say_empty(ax, "no steps")
        return
    count = _in_bins(steps, np.ones(len(steps["step"])), bins)
    decode = _mean(_in_bins(steps, steps["num_tokens"] - steps["num_prefill_tokens"], bins), count)
    whole = _mean(_in_bins(steps, steps["num_tokens"], bins), count)
    edges = bins.edges_s
    ax.stairs(decode, edges, fill=True, color=BLUE, label="decode")
    ax.stairs(whole, edges, baseline=decode, fill=True, color=ORANGE, label="prefill")
    if budget is not None and whole.max() > 0.4 * budget:
        ax.axhline(budget, color=INK, linewidth=0.9, linestyle=":")
    ax.set_ylim(bottom=0)
    plain_numbers(ax.yaxis)
    legend_above(ax)


def plot_preemptions(ax: Axes, steps: Columns, bins: TimeBins) -> None:
    """Preemptions in each bin, of all replicas."""
    counts = _in_bins(steps, steps["num_preempted"], bins)
    ax.stairs(counts, bins.edges_s, fill=True, color=RED, label="preemptions")
    ax.set_ylabel("preemptions")
    ax.set_ylim(0, max(float(counts.max()) * 1.1, 1.0))
    plain_numbers(ax.yaxis)


def plot_preemption_timeline(
    preempted: Axes, usage: Axes, steps: Columns, bins: TimeBins, replicas: tuple[ReplicaInfo, ...]
) -> None:
    """Preemptions above, the KV pool below: they happen where it is full."""
    plot_preemptions(preempted, steps, bins)
    plot_kv_usage(usage, steps, bins, replicas)
    usage.set_xlabel("simulated time (s)")
    plain_numbers(usage.xaxis)


def _in_bins(steps: Columns, amounts: npt.NDArray[np.generic], bins: TimeBins) -> FloatArray:
    totals, _ = np.histogram(steps["end_s"], bins=bins.edges_s, weights=amounts)
    return np.asarray(totals, dtype=np.float64)


def _mean(total: FloatArray, count: FloatArray) -> FloatArray:
    return np.divide(total, count, out=np.zeros_like(total), where=count > 0)
