"""Plots of a run: functions of rows and an `Axes`; only here is matplotlib imported."""

from sim.plots.arrivals import plot_ttft_over_arrival
from sim.plots.distributions import plot_cdf
from sim.plots.over_time import (
    TimeBins,
    plot_kv_usage,
    plot_output_rate,
    plot_request_rates,
    plot_running,
    plot_waiting,
    time_bins,
)
from sim.plots.run_plots import save_run_plots
from sim.plots.step_times import plot_step_times
from sim.plots.style import house_style, new_figure, save_figure

__all__ = [
    "TimeBins",
    "house_style",
    "new_figure",
    "plot_cdf",
    "plot_kv_usage",
    "plot_output_rate",
    "plot_request_rates",
    "plot_running",
    "plot_step_times",
    "plot_ttft_over_arrival",
    "plot_waiting",
    "save_figure",
    "save_run_plots",
    "time_bins",
]
