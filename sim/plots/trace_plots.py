"""The figure of `headway trace info`: arrivals by minute, lengths, ideal prefix hits."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from sim.plots.style import (
    BLUE,
    GREEN,
    ORANGE,
    house_style,
    legend_above,
    log_ticks,
    new_figure,
    note,
    plain_numbers,
    save_figure,
    say_empty,
)
from sim.wording import number_of
from traces import TraceInfo
from traces.histogram import Histogram
from traces.info import MINUTE_S


def save_trace_plot(info: TraceInfo, path: Path) -> None:
    """Draw a trace's arrivals, lengths and prefix hits into a PNG."""
    with house_style():
        figure = new_figure(7.6)
        rate, lengths, hits = figure.subplots(3, 1)
        plot_rate(rate, info.minutes)
        plot_lengths(lengths, info)
        plot_hits(hits, info)
        name = Path(info.reading.name).name
        requests = number_of(info.num_requests, "request")
        note(figure, [f"{requests} of {name} ({info.reading.format.name})"])
        save_figure(figure, path)


def plot_rate(ax: Axes, minutes: Histogram) -> None:
    """Arrivals a second in every minute; minutes without arrivals are 0."""
    first, last = int(minutes.values[0]), int(minutes.values[-1])
    per_s = np.zeros(last - first + 1)
    per_s[minutes.values - first] = minutes.counts / MINUTE_S
    ax.stairs(per_s, np.arange(first, last + 2), color=BLUE)
    ax.set_xlabel("minute from the first arrival")
    ax.set_ylabel("requests /s")
    ax.set_ylim(bottom=0)
    plain_numbers(ax.xaxis)


def plot_lengths(ax: Axes, info: TraceInfo) -> None:
    """The share of requests with at most so many tokens."""
    for name, histogram, colour in (
        ("prompt", info.prompt_tokens, BLUE),
        ("output", info.output_tokens, ORANGE),
    ):
        share = np.cumsum(histogram.counts) / histogram.total
        ax.plot(histogram.values, share, drawstyle="steps-post", color=colour, label=name)
    ax.set_xscale("log")
    plain_numbers(ax.xaxis)
    ax.set_xlabel("tokens")
    ax.set_ylabel("share of requests")
    ax.set_ylim(0, 1.02)
    legend_above(ax)


def plot_hits(ax: Axes, info: TraceInfo) -> None:
    """Ideal hit share by pool size, and that of a pool without bounds."""
    ax.set_xlabel("pool (million tokens)")
    ax.set_ylabel("ideal prefix hits")
    if info.pools is None:
        say_empty(ax, "no prompt says what it shares")
        return
    total = info.pools.num_prompt_tokens
    sizes = [(count.pool_tokens or 0) / 1e6 for count in info.pools.bounded]
    shares = [count.hit_tokens / total for count in info.pools.bounded]
    ax.plot(sizes, shares, "o-", color=GREEN, markersize=4, label="least recently used goes")
    ax.axhline(info.pools.unbounded.hit_tokens / total, color=BLUE, label="unbounded")
    ax.set_xscale("log")
    log_ticks(ax.xaxis)
    ax.set_ylim(bottom=0)
    legend_above(ax)
