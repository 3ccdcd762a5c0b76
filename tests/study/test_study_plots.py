"""Figures of studies by their structure; how they look is for eyes to judge."""

import numpy as np
import pytest
from matplotlib.colors import LogNorm, Normalize
from PIL import Image

from sim.errors import StudyError
from sim.plots.batches import plot_batch_composition, plot_preemption_timeline
from sim.plots.classes import plot_class_bars
from sim.plots.curve import curve_figure, plot_curve, save_curve
from sim.plots.effects import plot_effects
from sim.plots.heat_map import plot_heat_map
from sim.plots.over_time import time_bins
from sim.plots.pareto import plot_pareto
from sim.plots.style import house_style, new_figure, three_digits
from sim.study.curve import curve_lines, knee, read_measured
from sim.study.pareto import pareto_front
from tests.sim.toy_run import toy_requests, toy_run


def axes():
    return new_figure(4.0).subplots()


def row(scale, tokens, ttft, saturated=False, seqs=8, seed=0):
    return {
        "engine.max_num_seqs": seqs,
        "trace.rate_scale": scale,
        "seed": seed,
        "error": "",
        "load.arrival_rate_per_s": 2 * scale,
        "per_gpu.requests_per_s": tokens / 100,
        "per_gpu.output_tokens_per_s": tokens,
        **{f"latency.ttft_s.{stat}": ttft for stat in ("mean", "p50", "p99")},
        **{f"latency.tpot_s.{stat}": 0.01 for stat in ("mean", "p50", "p99")},
        "load.is_saturated": saturated,
    }


ROWS = [
    *(row(s, 100.0 * s, 0.1 / (5 - s), seed=seed) for s in (4, 1, 2, 3) for seed in (0, 1)),
    row(5, 420.0, 9.0, saturated=True),
    row(1, 90.0, 0.2, seqs=4),
    {**row(2, 1.0, 1.0, seqs=4), "error": "it failed"},
]
KEYS = ("engine.max_num_seqs", "trace.rate_scale")


@pytest.fixture
def lines():
    return curve_lines(ROWS, KEYS, "trace.rate_scale")


def test_a_curve_has_a_line_a_configuration_by_rising_load(lines):
    assert list(lines) == ["max_num_seqs 8", "max_num_seqs 4"]
    first = lines["max_num_seqs 8"]
    assert list(first["load"]) == [1, 2, 3, 4, 5]
    assert list(first["num_seeds"]) == [2, 2, 2, 2, 1]
    assert list(first["is_saturated"]) == [False] * 4 + [True]
    # throughput / latency is s (5 - s) x 1000: equal and largest at 2 and 3; the first is taken
    assert list(first["is_knee"]) == [False, True, False, False, False]
    assert list(lines["max_num_seqs 4"]["load"]) == [1]


def test_the_knee_of_an_mm1_queue_is_at_half_its_capacity():
    """Power r (1 - r) / s is largest at r = 1/2 (Kleinrock 1979)."""
    r = np.linspace(0.1, 0.9, 17)
    assert r[knee(r, 1 / (1 - r), np.zeros(17, bool))] == pytest.approx(0.5)


def test_no_knee_at_an_end_or_of_two_points():
    r = np.linspace(0.6, 0.9, 7)
    assert knee(r, 1 / (1 - r), np.zeros(7, bool)) is None
    assert knee(r[:2], r[:2], np.zeros(2, bool)) is None


def test_saturated_points_are_hollow_and_the_limit_is_drawn(lines):
    ax = axes()
    plot_curve(ax, lines, "ttft_mean_s", limit=0.5)
    hollow = [line for line in ax.lines if line.get_markerfacecolor() == "white"]
    assert list(hollow[0].get_xdata()) == [420.0]
    (limit,) = (line for line in ax.lines if line.get_linestyle() == "--")
    assert limit.get_ydata()[0] == 0.5
    assert ax.get_yscale() == "log"


@pytest.mark.filterwarnings("error")
def test_a_point_at_which_nothing_finished_has_no_output_length(lines):
    lines["max_num_seqs 8"]["requests_per_s_per_gpu"][-1] = 0.0
    curve_figure(lines).canvas.draw()


def test_the_points_of_a_curve_over_clients_name_the_clients(lines):
    with_clients, without = curve_figure(lines, has_clients=True), curve_figure(lines)
    shown = [text.get_text() for text in with_clients.axes[0].texts]
    assert sorted(shown) == ["1", "1", "2", "3", "4", "5"]
    assert "clients" in with_clients.get_supxlabel()
    assert not without.axes[0].texts and "clients" not in without.get_supxlabel()


def test_the_figure_has_four_panels_units_and_measured_points(lines, tmp_path):
    measured = read_measured("output_tokens_per_s_per_gpu,ttft_p50_s\n150,0.05\n", "m.csv")
    figure = curve_figure(lines, ttft_limit_s=0.5, measured=measured, notes=["a cost model"])
    labels = [ax.get_ylabel() for ax in figure.axes[:4]]
    assert labels == ["TTFT mean (ms)", "TTFT p50 (ms)", "TTFT p99 (ms)", "TPOT mean (ms)"]
    assert "a cost model" in figure.get_supxlabel()
    crosses = [[line for line in ax.lines if line.get_marker() == "x"] for ax in figure.axes[:4]]
    assert [len(found) for found in crosses] == [0, 1, 0, 0]


def test_the_same_lines_give_the_same_files(lines, tmp_path):
    saved = []
    for _ in range(2):
        with house_style():
            figure = curve_figure(lines)
        saved.append([path.read_bytes() for path in save_curve(figure, tmp_path)])
    assert saved[0] == saved[1]
    assert saved[0][1].startswith(b"%PDF")


@pytest.mark.parametrize("text", ["", "ttft_p50_s\n1\n", "output_tokens_per_s_per_gpu,x\n1,2\n",
                                  "output_tokens_per_s_per_gpu\nfast\n"])  # fmt: skip
def test_measured_points_that_make_no_sense_are_refused(text):
    with pytest.raises(StudyError, match="m"):
        read_measured(text, "m.csv")


def test_a_heat_map_has_a_number_in_every_cell_that_has_one():
    ax = axes()
    values = np.array([[1.0, 2.0, np.nan], [4.0, 5.0, 6.0]])
    plot_heat_map(ax, values, [1, 2, 3], ["a", "b"], x_name="x", y_name="y", name="TTFT (s)")
    assert sorted(t.get_text() for t in ax.texts) == ["-", "1", "2", "4", "5", "6"]
    assert [t.get_text() for t in ax.get_xticklabels()] == ["1", "2", "3"]


@pytest.mark.parametrize(
    ("value", "shown"),
    [(1496.7, "1,500"), (12345.0, "12,300"), (0.2738, "0.274"), (16.04, "16.0"), (9.999, "10.00"),
     (7.0, "7"), (0.0, "0"), (-31.25, "-31.2"), (0.00012345, "0.000123")],
)  # fmt: skip
def test_cells_have_three_digits_and_no_powers_of_ten(value, shown):
    assert three_digits(value) == shown


def test_a_heat_map_of_values_far_apart_goes_by_the_logarithm():
    """Or all but the largest have one colour."""
    for values, kind in (([[1.0, 10.0, 100.0]], LogNorm), ([[1.0, 2.0, 3.0]], Normalize)):
        ax = axes()
        plot_heat_map(ax, np.array(values), "abc", "d", x_name="x", y_name="y", name="z")
        (image,) = ax.images
        assert type(image.norm) is kind


def test_a_pareto_plot_labels_the_front_only():
    ax = axes()
    cost, latency = np.array([1.0, 2.0, 2.0]), np.array([3.0, 1.0, 5.0])
    plot_pareto(ax, cost, latency, pareto_front(cost, latency), ["one", "two"])
    assert [t.get_text() for t in ax.texts] == ["one", "two"]


def test_effects_leave_out_what_has_no_interval():
    def effect(change, **more):
        ends = {"low": change - 0.1, "high": change + 0.1}
        return {"is_relative": True, "change": change, **ends, "is_better": None, **more}

    ax = axes()
    plot_effects(ax, [effect(0.2, is_better=False), effect(0.0, low=None)], ["kept", "left out"])
    assert [t.get_text() for t in ax.get_yticklabels()] == ["kept"]


def test_batches_and_preemptions_add_up_to_the_steps():
    run = toy_run(toy_requests(200, 40.0, seed=3), num_gpu_blocks=80)
    bins = time_bins(run.steps, 30)
    top, above, below = new_figure(6.0).subplots(3, 1)
    plot_batch_composition(top, run.steps, bins, budget=512)
    plot_preemption_timeline(above, below, run.steps, bins, run.info.replicas)
    heights = above.patches[0].get_data().values
    assert heights.sum() == run.steps["num_preempted"].sum() > 0
    whole = top.patches[1].get_data().values
    inside = np.histogram(run.steps["end_s"], bins=bins.edges_s)[0]
    assert (whole * inside).sum() == pytest.approx(run.steps["num_tokens"].sum())


def test_class_bars_are_the_percentiles():
    ax = axes()
    plot_class_bars(ax, {"a": np.arange(101.0), "none": np.array([np.nan])}, "TTFT (s)", (50, 90))
    assert [bar.get_height() for bar in ax.patches] == [50.0, 90.0]
    assert [t.get_text() for t in ax.get_xticklabels()] == ["a\n101"]


def test_empty_tables_say_so(tmp_path):
    empty = toy_run([])
    bins = time_bins(toy_run(toy_requests(2, 1.0, seed=1)).steps, 3)
    nothing, names = np.full((1, 1), np.nan), {"x_name": "x", "y_name": "y", "name": "z"}
    for draw in (
        lambda ax: plot_batch_composition(ax, empty.steps, bins),
        lambda ax: plot_class_bars(ax, {}, "x"),
        lambda ax: plot_pareto(ax, np.empty(0), np.empty(0), np.empty(0, np.intp)),
        lambda ax: plot_effects(ax, [], []),
        lambda ax: plot_heat_map(ax, nothing, [1], [1], **names),
    ):
        ax = axes()
        draw(ax)
        assert ax.texts
    figure = curve_figure({})
    figure.savefig(tmp_path / "x.png")
    with Image.open(tmp_path / "x.png") as image:
        assert image.width > 300
