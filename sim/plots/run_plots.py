"""The figures of a run folder."""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from sim.metrics import e2e_s, finished_values, is_finished, tpot_s, ttft_s
from sim.metrics.units import time_unit
from sim.plots.arrivals import plot_ttft_over_arrival
from sim.plots.distributions import plot_cdf
from sim.plots.over_time import (
    plot_kv_usage,
    plot_output_rate,
    plot_request_rates,
    plot_running,
    plot_waiting,
    time_bins,
)
from sim.plots.step_times import plot_step_times
from sim.plots.style import (
    BLUE,
    GREEN,
    RED,
    house_style,
    new_figure,
    note,
    plain_numbers,
    save_figure,
    say_empty,
)
from sim.rows import num_rows
from sim.run_result import RunResult
from sim.wording import number_of

_STATE_BINS, _MAX_RATE_BINS = 200, 60


def save_run_plots(result: RunResult, folder: Path) -> list[Path]:
    """Draw every figure of a run into a folder, made if need be; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    drawings = {
        "latency_cdf.png": latency_cdf,
        "over_time.png": over_time,
        "ttft_over_arrival.png": ttft_over_arrival,
        "step_time.png": step_time,
    }
    with house_style():
        for name, draw in drawings.items():
            save_figure(draw(result), folder / name)
    return [folder / name for name in drawings]


def latency_cdf(result: RunResult) -> Figure:
    """CDFs of TTFT, TPOT and E2E of finished requests, side by side."""
    figure = new_figure(3.6)
    left, middle, right = figure.subplots(1, 3, sharey=True)
    requests = result.requests
    panels = (
        (left, "TTFT", ttft_s(requests), BLUE),
        (middle, "TPOT", tpot_s(requests), GREEN),
        (right, "E2E", e2e_s(requests), RED),
    )
    for ax, name, latency_s, colour in panels:
        values = finished_values(requests, latency_s)
        # The rule of the summary table, so that the two agree.
        unit = time_unit(float(np.median(values)) if len(values) else None)
        plot_cdf(ax, unit.scale * values, name, unit.name, colour)
    left.set_ylabel("share of requests")
    note(figure, [_finished_note(result), *_origin_notes(result)])
    return figure


def over_time(result: RunResult) -> Figure:
    """Running, waiting, KV usage, output rate, arrivals and completions over simulated time."""
    replicas, steps = result.info.replicas, result.steps
    if not num_rows(steps):
        return _no_steps(result)
    figure = new_figure(8.6)
    axes = figure.subplots(5, 1, sharex=True)
    states, rates = time_bins(steps, _STATE_BINS), time_bins(steps, _num_rate_bins(result))
    plot_running(axes[0], steps, states, len(replicas))
    plot_waiting(axes[1], steps, states, len(replicas))
    plot_kv_usage(axes[2], steps, states, replicas)
    plot_output_rate(axes[3], steps, rates)
    plot_request_rates(axes[4], result.requests, rates)
    axes[4].set_xlabel("simulated time (s)")
    plain_numbers(axes[4].xaxis)
    figure.align_ylabels(axes)
    widths = f"means over {states.width_s:.3g} s, rates over {rates.width_s:.3g} s"
    note(figure, [f"{number_of(len(replicas), 'replica')}, {widths}", *_origin_notes(result)])
    return figure


def _no_steps(result: RunResult) -> Figure:
    figure = new_figure(3.0)
    say_empty(figure.subplots(), "no steps: nothing ran")
    note(figure, [_finished_note(result), *_origin_notes(result)])
    return figure


def _num_rate_bins(result: RunResult) -> int:
    """A rate needs wider bins than a state does: some requests and many steps in each."""
    fitting = min(num_rows(result.steps) // 10, num_rows(result.requests) // 5)
    return min(max(fitting, 4), _MAX_RATE_BINS)


def ttft_over_arrival(result: RunResult) -> Figure:
    """TTFT of each finished request by its arrival."""
    figure = new_figure(4.2)
    shown = plot_ttft_over_arrival(figure.subplots(), result.requests)
    total = int(is_finished(result.requests).sum())
    note(figure, [_shown_note(shown, total, "finished requests", "evenly"), *_origin_notes(result)])
    return figure


def step_time(result: RunResult) -> Figure:
    """Step time against batch tokens."""
    figure = new_figure(4.4)
    shown = plot_step_times(figure.subplots(), result.steps)
    total = num_rows(result.steps)
    note(
        figure,
        [
            _shown_note(shown, total, "steps", "decode thinned most"),
            *_origin_notes(result),
        ],
    )
    return figure


def _finished_note(result: RunResult) -> str:
    finished = is_finished(result.requests)
    return f"{int(finished.sum()):,} finished of {number_of(len(finished), 'request')}"


def _shown_note(shown: int, total: int, what: str, how: str) -> str:
    if shown == total:
        return f"{what}: {total:,}"
    return f"{what}: {shown:,} shown of {total:,}, {how}"


def _origin_notes(result: RunResult) -> list[str]:
    """What a reader must know of a result wherever he meets it: its cost model, and if it's cut."""
    partial = "PARTIAL RUN" if result.info.partial else ""
    return [str(result.info.cost.get("label", "")), partial]
