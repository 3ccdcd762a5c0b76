"""Samples, the adaptive grid and the time budget: no torch, and a clock of their own."""

import json
from pathlib import Path

import numpy as np
import pytest

from calibration import (
    CalibrationError,
    ProfileCost,
    StepShape,
    decode_shape,
    load_model,
    parse_profile,
)
from calibration.bench.axes import Limits, TableAxes, initial_axes
from calibration.bench.group import AllReduceTimes, message_sizes, share_of, with_all_reduces
from calibration.bench.held_out import bias
from calibration.bench.pace import pace_points, scaled
from calibration.bench.plan import CalibrationPlan
from calibration.bench.points import MIXED, SKEW, SKEWED_MIX, Point
from calibration.bench.samples import Sample, SampleStore, mean_time_s
from calibration.bench.session import BenchProgress, Session
from calibration.bench.skewed_contexts import skewed_contexts
from calibration.bench.tables import make_profile, skew_cases
from calibration.decode_skew import SkewCase, fit_shares, skew_errors
from calibration.interpolation import Grid
from sim.rng import Streams
from tests.calibration.cost_models import profile_document

LIMITS = Limits(
    max_num_batched_tokens=64, max_num_seqs=8, max_model_len=256, max_context_tokens=1024
)
POINT = Point("dense", 4)


def calm(time_s: float) -> Sample:
    return Sample(time_s, time_s, time_s)


class FakeMachine:
    """A device whose points take known times, and the clock that they move."""

    def __init__(self, noise: float = 0.0) -> None:
        self.now_s = 0.0
        self.asked: list[Point] = []
        self._noise = noise
        self._rng = Streams(1).rng("noise")

    def time_s(self, point: Point) -> float:
        return 1e-3 + 1e-5 * point.first + 1e-7 * point.first * point.second

    def measure(self, point: Point) -> Sample:
        self.asked.append(point)
        time_s = self.time_s(point) * (1 + self._noise * self._rng.normal())
        self.now_s += time_s
        return calm(time_s)

    def session(self, store: SampleStore, budget_s: float, stop_after: int = 10**9) -> Session:
        def on_progress(_: BenchProgress) -> bool:
            return len(self.asked) < stop_after

        return Session(
            self.measure,
            store,
            budget_s=budget_s,
            clock=lambda: self.now_s,
            rng=Streams(0).rng("order"),
            on_progress=on_progress,
        )


def test_a_hiccup_hardly_moves_a_time() -> None:
    store = SampleStore({})
    for time_s in (1.0, 1.01, 0.99, 1.0, 1.02, 0.98, 50.0):
        store.add(POINT, calm(time_s))
    assert store.time_s(POINT) == pytest.approx(1.0, rel=0.25 / 7 + 1e-3)


def test_a_slower_sample_never_makes_a_point_quicker() -> None:
    means = [mean_time_s([1.0, 1.01, 0.99, 1.0, slow]) for slow in np.linspace(1.0, 9.0, 200)]
    assert np.all(np.diff(means) >= 0)


def test_a_core_of_two_paces_counts_as_their_mean() -> None:
    """A quarter of the time a neighbour is away: the rarer pace is no outlier, and not settled."""
    store = SampleStore({})
    times = [7.5, 9.0, 9.1, 9.05, 7.52, 9.0, 9.1, 9.08, 7.49, 9.02, 9.0, 9.03]
    for time_s in times:
        store.add(POINT, calm(time_s))
    found = store.statistics(POINT)
    assert found is not None
    assert found.time_s == pytest.approx(np.mean(times))
    assert not found.is_settled


def test_equal_samples_settle_and_scattered_ones_do_not() -> None:
    store = SampleStore({})
    for _ in range(5):
        store.add(POINT, calm(1.0))
    found = store.statistics(POINT)
    assert found is not None and found.is_settled
    scattered = SampleStore({})
    for time_s in (1.0, 1.3, 0.8, 1.1, 0.7):
        scattered.add(POINT, calm(time_s))
    found = scattered.statistics(POINT)
    assert found is not None and not found.is_settled


def test_interrupted_samples_are_counted() -> None:
    store = SampleStore({})
    store.add(POINT, Sample(1.0, wall_s=3.0, cpu_s=1.0))
    store.add(POINT, Sample(1.0, wall_s=1.0, cpu_s=1.0))
    found = store.statistics(POINT)
    assert found is not None and found.num_disturbed == 1


def test_samples_come_back_from_their_file(tmp_path: Path) -> None:
    file = tmp_path / "p.samples.jsonl"
    store = SampleStore({"device": "x"}, file)
    store.start()
    store.add(POINT, calm(1.5))
    with file.open("a") as out:
        out.write('["dense", 4, 0, 1.')  # killed while writing
    again = SampleStore({"device": "x"}, file)
    again.resume()
    assert again.samples == {POINT: [calm(1.5)]}


@pytest.mark.parametrize("content", ["", "{}", "not json", json.dumps({"format": "other"})])
def test_resume_refuses_other_files(tmp_path: Path, content: str) -> None:
    file = tmp_path / "p.samples.jsonl"
    file.write_text(content)
    with pytest.raises(CalibrationError, match="not a file of samples"):
        SampleStore({}, file).resume()


def test_time_lost_to_interruptions_is_what_the_wall_shows_beyond_the_points() -> None:
    """Nine calm samples of 1 s and one for which the wall showed 2 s: a tenth was lost."""
    store = SampleStore({})
    for _ in range(9):
        store.add(POINT, calm(1.0))
    store.add(POINT, Sample(1.0, wall_s=2.0, cpu_s=1.0))
    assert store.lost_share() == pytest.approx(0.1)


def test_resume_refuses_samples_of_another_device(tmp_path: Path) -> None:
    file = tmp_path / "p.samples.jsonl"
    SampleStore({"device": "x"}, file).start()
    with pytest.raises(CalibrationError, match="device 'x', now it is 'y'"):
        SampleStore({"device": "y"}, file).resume()
    with pytest.raises(CalibrationError, match="nothing to resume"):
        SampleStore({}, tmp_path / "none").resume()


def test_a_session_keeps_to_its_budget_and_covers_the_grid_first() -> None:
    machine, store = FakeMachine(noise=0.3), SampleStore({})
    plan = CalibrationPlan(LIMITS, ["norms"], 6)
    machine.session(store, budget_s=1.0).run(plan)
    longest = max(map(machine.time_s, machine.asked))
    assert machine.now_s <= 1.0 + 2 * longest
    assert not plan.missing(store)


def test_a_session_ends_early_once_all_has_settled() -> None:
    machine, store = FakeMachine(), SampleStore({})
    plan = CalibrationPlan(LIMITS, [], 0)
    machine.session(store, budget_s=1e6).run(plan)
    assert machine.now_s < 60
    assert all(store.statistics(point) is not None for point in plan.points())


def test_a_stop_ends_a_session_at_once_with_what_it_has() -> None:
    machine, store = FakeMachine(), SampleStore({})
    session = machine.session(store, budget_s=1e6, stop_after=10)
    session.run(CalibrationPlan(LIMITS, [], 0))
    assert session.was_stopped and len(machine.asked) <= 12
    assert 0 < len(store.samples) <= 6


def test_a_session_goes_on_from_where_it_was_and_the_time_between_does_not_count() -> None:
    machine, store = FakeMachine(noise=0.3), SampleStore({})
    plan = CalibrationPlan(LIMITS, [], 0)
    session = machine.session(store, budget_s=5.0)
    session.run(plan, 0.3)
    longest = max(map(machine.time_s, machine.asked))
    assert session.elapsed_s == pytest.approx(1.5, abs=2 * longest)
    machine.now_s += 1000.0
    session.run(plan, 1.0)
    assert session.elapsed_s == pytest.approx(5.0, abs=2 * longest)
    assert machine.now_s == pytest.approx(1005.0, abs=2 * longest)


def test_axes_reach_the_limits() -> None:
    dense, logits, prefill, decode = initial_axes(LIMITS)
    assert (dense.rows[0], dense.rows[-1]) == (1, 64)
    assert logits.rows[-1] == 8
    assert (prefill.rows[-1], prefill.columns[0], prefill.columns[-1]) == (64, 0, 256)
    assert (decode.rows[-1], decode.columns[-1]) == (8, 256)


def test_contexts_fill_half_of_their_last_block() -> None:
    """As those of service do in the mean; the longest is the model's own."""
    contexts = initial_axes(LIMITS)[3].columns
    assert contexts[-1] == LIMITS.max_model_len
    assert [context % 16 for context in contexts if 16 < context < contexts[-1]] == [8]


def test_a_gap_is_filled_where_a_straight_line_misses() -> None:
    axes = TableAxes("dense", [1, 64], [0])

    def bent(point: Point) -> float:
        return 1.0 + max(0, point.first - 8)

    (probe,) = axes.candidates()
    assert probe == Point("dense", 8)
    assert axes.judge(probe, bent, noise=0.0)
    assert axes.rows == [1, 8, 64]


def test_a_parabola_over_chunks_needs_no_more_rows() -> None:
    """Attention of a chunk goes by pairs of tokens: rows 4 apart give it back."""

    def time_s(point: Point) -> float:
        new, computed = point.first, point.second
        return 1e-8 * (new * computed + new * (new + 1) / 2)

    axes = TableAxes("prefill_attention", [2, 8, 29, 125, 512], [0, 61, 1024])
    assert not any(axes.judge(probe, time_s, 0.0) for probe in axes.candidates())
    rows, times = axes.read_rows(time_s)
    grid = Grid(rows, axes.columns, times)
    errors = [
        grid.at(new, computed) / time_s(Point("prefill_attention", new, computed)) - 1
        for new in range(2, 513)
        for computed in (0, 30, 61, 500, 1024)
    ]
    assert min(errors) > -1e-9 and max(errors) < 0.025
    assert max(errors[5 * 6 :]) < 0.015  # from 8 tokens on


def test_chunks_that_go_by_rows_get_more_rows() -> None:
    """Not by pairs: without context the pairs miss them between rows 4 apart."""
    axes = TableAxes("prefill_attention", [8, 29, 125], [0, 61, 1024])

    def time_s(point: Point) -> float:
        return 1e-6 * point.first

    assert any(axes.judge(probe, time_s, 0.0) for probe in axes.candidates())


def test_no_row_is_added_where_a_line_fits_or_noise_explains_it() -> None:
    axes = TableAxes("decode_attention", [1, 8], [1, 16, 256])
    for probe in axes.candidates():
        assert not axes.judge(probe, lambda p: 1.0 + 0.1 * p.first * p.second, noise=0.0)
    noisy = TableAxes("dense", [1, 64], [0])
    assert not noisy.judge(Point("dense", 8), lambda p: 1.1 if p.first == 8 else 1.0, noise=0.05)


def test_cells_beyond_the_cache_go_on_along_their_row() -> None:
    axes = TableAxes("decode_attention", [1, 8], [1, 16, 256], limit=256)
    assert Point("decode_attention", 8, 256) not in axes.points()
    times = axes.times(lambda p: 1.0 + 0.5 * p.first * p.second)
    assert times[1][2] == pytest.approx(1.0 + 0.5 * 8 * 256)


def test_rows_without_samples_are_left_out() -> None:
    axes = TableAxes("decode_attention", [1, 4, 8], [1, 16])
    known = {point for point in axes.points() if point.first != 4}
    axes.drop_unfilled(known)
    assert axes.rows == [1, 8] and axes.columns == [1, 16]


def test_an_adapted_grid_predicts_what_it_has_not_measured() -> None:
    """A device with a kink at 24 tokens, as products have: probes find it."""
    machine = FakeMachine()

    def kinked(point: Point) -> float:
        work = 1e-4 * point.first * (point.second + 1)
        return 1e-3 * (1.0 + 0.2 * (point.first > 24) + work)

    machine.time_s = kinked  # type: ignore[method-assign]
    store = SampleStore({})
    plan = CalibrationPlan(LIMITS, [], 0)
    machine.session(store, budget_s=1e6).run(plan)
    rows = plan.axes_of("dense").rows
    assert any(16 < row <= 24 for row in rows) and any(24 < row <= 32 for row in rows)
    assert np.all(np.diff(rows) > 0)


def test_a_device_that_waits_for_the_longest_context_is_predicted() -> None:
    """Decodes 0.3 of the way to the longest, beside chunks 0.6: shares and times come back."""
    machine = FakeMachine()
    plan, store = CalibrationPlan(LIMITS, [], 0), SampleStore({})
    even = machine.time_s

    def waiting(point: Point, *, share: float) -> float:
        longest = max(skewed_contexts(point.second, point.first))
        short = even(Point("decode_attention", point.first, point.second))
        return short + share * (even(Point("decode_attention", point.first, longest)) - short)

    def time_s(point: Point) -> float:
        if point.table == SKEW:
            return waiting(point, share=0.3)
        if point.table == SKEWED_MIX:
            decodes = Point("decode_attention", point.second, point.first)
            return even(Point(MIXED, *point[1:])) - even(decodes) + waiting(decodes, share=0.6)
        return even(point)

    machine.time_s = time_s  # type: ignore[method-assign]
    machine.session(store, budget_s=1e6).run(plan)
    profile = make_profile(plan, store, parse_profile(profile_document(), "p").provenance)
    assert plan.skew and plan.skewed_mixes
    assert profile.decode_skew is not None and profile.decode_skew_beside_chunks is not None
    assert profile.decode_skew.share == pytest.approx(
        [0.3] * len(profile.decode_skew.share), abs=0.01
    )
    assert profile.decode_skew_beside_chunks.share[-1] == pytest.approx(0.6, abs=0.01)
    cost = ProfileCost(profile)
    for point in plan.skew:
        contexts = skewed_contexts(point.second, point.first)
        shape = decode_shape(point.first, sum(contexts), max(contexts))
        dense_s = even(Point("dense", point.first)) + even(Point("logits", point.first))
        assert cost.step_time_s(shape) - dense_s == pytest.approx(time_s(point), rel=0.01)
    alone, _ = skew_cases(plan, store)
    errors = skew_errors(alone, profile.decode_skew)
    assert 5 * errors["mean"] < errors["uncorrected_mean"]


def test_a_noisy_share_is_right_in_the_mean() -> None:
    """Timings that scatter by 20 % about 0.3 of the way from 1 to 3."""
    noise = np.exp(0.2 * Streams(8).rng("share").standard_normal(4000) - 0.02)
    table = fit_shares([SkewCase(4, 1.6 * float(factor), 1.0, 3.0) for factor in noise])
    assert table is not None and table.share[0] == pytest.approx(0.3, abs=0.01)


def test_shares_stay_within_nothing_and_the_longest() -> None:
    quicker = [SkewCase(4, 0.9, 1.0, 2.0), SkewCase(8, 2.5, 1.0, 2.0)]
    table = fit_shares(quicker)
    assert table is not None and table.share == (0.0, 1.0)
    assert fit_shares([]) is None
    assert skew_errors([], None) == {"num_points": 0}


def test_a_group_adds_its_all_reduces_and_splits_the_work() -> None:
    model = load_model("llama-3.1-8b")
    share = share_of(model, 4)
    assert (share.query_size, share.kv_size) == (model.query_size // 4, model.kv_size // 4)
    assert (share.intermediate_size, share.vocab_size) == (3584, 32064)
    assert (share.hidden_size, share.num_hidden_layers) == (4096, 32)
    assert share_of(model, 1) == model
    with pytest.raises(CalibrationError, match="does not divide"):
        share_of(model, 3)
    profile = parse_profile(profile_document(), "p.json")
    sizes = message_sizes(model, LIMITS)
    assert (sizes[0], sizes[-1]) == (8192, 64 * 8192)
    times = AllReduceTimes("gloo", 4, tuple(sizes), tuple(10 + size / 1000 for size in sizes))
    group = with_all_reduces(profile, times, model)
    added = np.subtract(group.dense.time_us, profile.dense.time_us)
    # Beyond the largest message the rate stays.
    expected = [64 * (10 + 8.192 * n) for n in (1, 16)] + [64 * 4 * (10 + 8.192 * 64)]
    assert added[:3] == pytest.approx(expected, rel=1e-3)
    assert group.logits.time_us[0] > profile.logits.time_us[0]
    assert group.fit["all_reduce"]["backend"] == "gloo"
    assert group.decode_attention == profile.decode_attention


def test_single_timings_that_scatter_leave_no_bias() -> None:
    """Predictions that are right in the mean have none; the mean of errors would be 0.2^2."""
    rng = Streams(2).rng("scatter")
    measured = np.exp(0.2 * rng.standard_normal(20_000) - 0.02)
    assert abs(bias(1.0 / measured - 1.0)) < 0.005
    assert bias(np.array([0.1, 0.1])) == pytest.approx(0.1)


def test_the_pace_is_taken_at_the_profile_s_own_points() -> None:
    profile = parse_profile(profile_document(), "p.json")
    points = pace_points(profile)
    assert points[Point("dense", 1)] == pytest.approx(5020e-6)
    slower = scaled(profile, 1.25)
    assert pace_points(slower) == pytest.approx({p: 1.25 * t for p, t in points.items()})
    shape = StepShape(9, 3, 2, 40, ((7, 0),))
    before_s, after_s = (ProfileCost(p).step_time_s(shape) for p in (profile, slower))
    assert after_s == pytest.approx(1.25 * before_s)
