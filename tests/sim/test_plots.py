"""Figures by their structure: axes, units, what is drawn; how they look is for eyes to judge."""

import subprocess
import sys
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from PIL import Image

from sim.metrics import summarise
from sim.plots import plot_cdf, plot_step_times, plot_ttft_over_arrival, save_run_plots
from sim.plots.run_plots import latency_cdf, over_time, step_time, ttft_over_arrival
from sim.plots.sampling import bin_means, bin_rates, evenly
from sim.plots.style import MAX_POINTS, new_figure, note
from tests.sim.hand_run import hand_run
from tests.sim.toy_run import ToyRequest, toy_requests, toy_run

ROOT = Path(__file__).resolve().parents[2]
NAMES = ["latency_cdf.png", "over_time.png", "step_time.png", "ttft_over_arrival.png"]


@pytest.fixture(scope="module")
def run():
    return toy_run(
        toy_requests(300, 20.0, seed=4), num_replicas=3, num_gpu_blocks=80, aborts={5: 0.4}
    )


def labels(figure: Figure) -> list[str]:
    return [text for ax in figure.axes for text in (ax.get_xlabel(), ax.get_ylabel()) if text]


RUNS = {
    "three replicas": lambda: toy_run(toy_requests(60, 20.0, seed=4), num_replicas=3),
    "one request": lambda: toy_run(toy_requests(1, 1.0, seed=4)),
    "one token": lambda: toy_run([ToyRequest(0, 0.0, 10, 1)]),
    "all rejected": lambda: toy_run([ToyRequest(0, 0.0, 10**7, 5)]),
    "all at once": lambda: toy_run([ToyRequest(i, 0.0, 10, 5) for i in range(9)]),
    "none finished": lambda: toy_run(toy_requests(9, 20.0, seed=4), until_s=0.01),
    "nothing": lambda: toy_run([]),
}


@pytest.mark.parametrize("name", RUNS)
def test_every_run_can_be_drawn(tmp_path, name):
    paths = save_run_plots(RUNS[name](), tmp_path / "plots")
    assert sorted(path.name for path in paths) == NAMES
    for path in paths:
        with Image.open(path) as image:
            assert image.width > 1000
            # No date, no software, no version: only the resolution.
            assert set(image.info) == {"dpi"}


def test_drawing_leaves_matplotlib_as_it_was(tmp_path):
    before = dict(matplotlib.rcParams)
    save_run_plots(hand_run(), tmp_path / "plots")
    assert dict(matplotlib.rcParams) == before


def test_a_figure_has_the_units_of_the_table(run):
    """The rule of both: milliseconds for a median below a second."""
    slow = toy_run(toy_requests(60, 20.0, seed=4), base_s=0.2)
    for result in (run, slow):
        latency = summarise(result)["latency"]
        wanted = {n: "ms" if latency[f"{n}_s"]["p50"] < 1 else "s" for n in ("ttft", "tpot", "e2e")}
        shown = [ax.get_xlabel() for ax in latency_cdf(result).axes]
        assert shown == [f"{name.upper()} ({unit})" for name, unit in wanted.items()]


def test_axes_have_names_and_units(run):
    assert labels(latency_cdf(run)) == [
        "TTFT (ms)",
        "share of requests",
        "TPOT (ms)",
        "E2E (ms)",
    ]
    assert labels(over_time(run)) == [
        "running\nrequests",
        "waiting\nrequests",
        "KV blocks\nused (%)",
        "output\ntokens / s",
        "simulated time (s)",
        "requests / s",
    ]
    assert labels(ttft_over_arrival(run)) == ["arrival (s)", "TTFT (ms)"]
    assert labels(step_time(run)) == [
        "tokens computed in the step",
        "step time (ms)",
        "prefill share of the tokens (%)",
    ]


@pytest.mark.parametrize("draw", [latency_cdf, over_time, ttft_over_arrival, step_time])
def test_every_figure_says_which_cost_model_made_it(run, draw):
    assert "linear: a toy" in draw(run).get_supxlabel()


def test_a_long_note_is_wrapped_inside_the_figure():
    figure = new_figure(4.0)
    note(figure, ["1 replica, means over 0.246 s, rates over 0.819 s", "word " * 40])
    figure.canvas.draw()
    (text,) = figure.texts
    assert "\n" in figure.get_supxlabel()
    assert text.get_window_extent().x1 <= figure.bbox.x1


@pytest.mark.parametrize("draw", [over_time, ttft_over_arrival])
def test_legends_do_not_cover_data(run, draw):
    figure = draw(run)
    figure.canvas.draw()
    for ax in figure.axes:
        if ax.get_legend() is not None:
            assert not ax.get_legend().get_window_extent().overlaps(ax.get_window_extent())


def test_a_cdf_is_the_share_at_or_below():
    ax = Figure().subplots()
    plot_cdf(ax, np.array([4.0, 1.0, 2.0, 2.0]), "x", "s")
    stairs = ax.lines[0]
    assert stairs.get_drawstyle() == "steps-post"
    assert list(zip(*stairs.get_data(), strict=True)) == [
        (1.0, 0.0),
        (1.0, 0.25),
        (2.0, 0.5),
        (2.0, 0.75),
        (4.0, 1.0),
    ]


def test_one_outlier_does_not_flatten_the_rest():
    ax = Figure().subplots()
    plot_cdf(ax, np.append(np.linspace(1, 2, 999), 1000.0), "x", "s")
    assert ax.get_xlim()[1] < 4
    assert "max  1,000 s" in ax.get_title()


TAILS = {
    "none": np.linspace(1, 2, 999),
    "one above": np.append(np.linspace(1, 2, 999), 1000.0),
    "one below, decades": np.append(np.logspace(-2, 2, 999), 1e-9),
    "decades": np.logspace(-2, 2, 999),
}


@pytest.mark.parametrize("name", TAILS)
def test_a_cdf_marks_what_lies_beyond_its_axis(name):
    ax, values = Figure().subplots(), TAILS[name]
    plot_cdf(ax, values, "x", "s")
    left, right = ax.get_xlim()
    marked = [line.split()[0] for line in ax.get_title().splitlines() if "off the axis" in line]
    assert ("min" in marked) == (values.min() < left)
    assert ("max" in marked) == (values.max() > right)


def test_the_waiting_are_said_to_be_those_left_after_admissions(run):
    legends = [ax.get_legend() for ax in over_time(run).axes]
    said = [text.get_text() for legend in legends if legend for text in legend.get_texts()]
    assert "left waiting after a step's admissions" in said


def test_a_cdf_over_decades_is_logarithmic():
    ax = Figure().subplots()
    plot_cdf(ax, np.logspace(-2, 2, 500), "x", "s")
    assert ax.get_xscale() == "log"


def test_scatters_are_thinned_and_say_so():
    num = 3 * MAX_POINTS
    steps = {
        "num_tokens": np.where(np.arange(num) % 100 == 0, 512, 1 + np.arange(num) % 7),
        "num_prefill_tokens": np.where(np.arange(num) % 100 == 0, 500, 0),
        "start_s": np.arange(num, dtype=float),
        "end_s": np.arange(num) + 0.01,
    }
    ax = Figure().subplots()
    assert plot_step_times(ax, steps) == MAX_POINTS
    drawn = ax.collections[0].get_offsets()[:, 0]
    assert len(drawn) == MAX_POINTS
    assert (drawn == 512).sum() == num / 100  # the rare prefill steps are all there


def test_requests_that_did_not_finish_are_ticks_not_points(run):
    ax = Figure().subplots()
    assert plot_ttft_over_arrival(ax, run.requests) == (run.requests["state"] == "finished").sum()
    legend = [text.get_text() for text in ax.get_legend().get_texts()]
    assert legend[-1] == f"not finished ({(run.requests['state'] != 'finished').sum()})"


@given(st.integers(1, 60), st.integers(1, 20))
def test_evenly_keeps_both_ends_and_never_repeats(length, at_most):
    chosen = evenly(np.arange(length), at_most)
    assert len(set(chosen.tolist())) == len(chosen) == min(length, at_most)
    assert chosen[0] == 0
    if at_most > 1:
        assert chosen[-1] == length - 1


def test_bin_means_by_hand():
    # 2 held over 0..1, nothing over 1..2, 6 over 2..4; in bins of 1.5 s, and the last half-empty.
    start, end, value = np.array([0.0, 2.0]), np.array([1.0, 4.0]), np.array([2.0, 6.0])
    means = bin_means(np.array([0.0, 1.5, 3.0, 4.5]), start, end, value)
    np.testing.assert_allclose(means, [2 / 1.5, 6 / 1.5, 6 / 1.5])


def test_bin_rates_by_hand():
    times, amounts = np.array([0.5, 1.5, np.nan, 3.0]), np.array([1, 4, 99, 2])
    np.testing.assert_allclose(bin_rates(np.array([0.0, 1.0, 3.0]), times, amounts), [1.0, 3.0])
    np.testing.assert_allclose(bin_rates(np.array([0.0, 1.0, 3.0]), times), [1.0, 1.0])


NO_MATPLOTLIB = """
import sys
import sim.checks, sim.metrics, sim.result, sim.summary_table
heavy = {"matplotlib", "pandas", "pyarrow", "rich", "torch"} & set(sys.modules)
assert not heavy, heavy
"""


def test_the_rest_is_imported_without_heavy_libraries():
    subprocess.run([sys.executable, "-c", NO_MATPLOTLIB], check=True, cwd=ROOT)


def test_pyplot_is_never_imported(tmp_path):
    code = (
        "import sys, pathlib; from sim.plots import save_run_plots;"
        "from tests.sim.hand_run import hand_run;"
        f"save_run_plots(hand_run(), pathlib.Path({str(tmp_path)!r}));"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
