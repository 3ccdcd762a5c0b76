"""Steady state and backlog against an M/D/1 queue, computed by Lindley's recursion."""

import numpy as np
import pytest

from calibration import ConstantCost
from sim.config import ClosedLoad, OpenLoad
from sim.errors import StudyError
from sim.metrics.backlog import backlog, backlog_warnings, in_system
from sim.metrics.steadiness import not_steady, unsettled
from sim.metrics.throughput import Window
from sim.scheduler.config import CacheConfig, SchedulerConfig
from sim.simulation import simulate
from sim.study.steady import kept_window, mser, steadiness, trimmed
from sim.study.sweep_section import TrimSection
from tests.sim.small_study import make_study
from traces import RequestSpec


def md1(n: int, load: float, seed: int, extra_s: np.ndarray | None = None):
    """Rows of an M/D/1 queue with a service of one second."""
    rng = np.random.Generator(np.random.PCG64(seed))
    arrival_s = np.cumsum(rng.exponential(1 / load, n))
    service = np.ones(n) if extra_s is None else 1 + extra_s
    done_s, now_s = np.empty(n), 0.0
    for i in range(n):
        now_s = max(now_s, arrival_s[i]) + service[i]
        done_s[i] = now_s
    return {
        "request_id": np.arange(n),
        "arrival_s": arrival_s,
        "first_token_s": done_s,
        "last_token_s": done_s,
        "state": np.full(n, "finished"),
    }


def share_growing(n: int, load: float, runs: int = 60) -> float:
    rows = [md1(n, load, seed) for seed in range(runs)]
    return float(np.mean([backlog(r, kept_window(r, None)).is_growing for r in rows]))


@pytest.mark.parametrize("load", [0.5, 0.8, 0.9])
def test_a_stable_queue_is_no_overload(load):
    assert share_growing(1000, load) <= 0.02


def test_a_queue_just_at_capacity_is_rarely_called_overloaded():
    assert share_growing(1000, 1.0) <= 0.10


def test_overload_is_found():
    assert share_growing(1000, 1.5) >= 0.98
    assert share_growing(4000, 1.1) >= 0.85


def test_the_drift_is_arrivals_less_completions():
    rows = md1(4000, 2.0, 1)
    found = backlog(rows, kept_window(rows, None))
    assert found.drift_per_s == pytest.approx(1.0, abs=0.15)  # 2 arrive, 1 leaves
    assert found.drift_share == pytest.approx(0.5, abs=0.07)


def test_a_long_transient_is_not_overload():
    """Hundreds wait from the beginning; they drain, though slowly."""
    extra = np.zeros(4000)
    extra[0] = 300.0
    rows = md1(4000, 0.8, 2, extra)
    assert not backlog(rows, kept_window(rows, None)).is_growing


@pytest.mark.parametrize("at_s", [0.0, 5.0])
def test_requests_that_come_at_once_have_no_trend(at_s):
    rows = md1(200, 1.0, 1)
    rows["last_token_s"] += at_s
    rows["arrival_s"] = np.full(200, at_s)
    assert not backlog(rows, kept_window(rows, None)).is_growing
    assert backlog_warnings(rows) == ()


def test_the_number_in_the_system_follows_arrivals_and_ends():
    rows = md1(3, 0.1, 1)
    between = (rows["arrival_s"] + rows["last_token_s"]) / 2
    assert list(in_system(rows, between)) == [1, 1, 1]


def test_refused_requests_are_never_in_the_system():
    rows = md1(3, 0.1, 1)
    rows["state"] = np.array(["rejected", "finished", "finished"])
    assert in_system(rows, np.array([1e9]))[0] == 0


def test_trimming_by_time_and_by_count():
    rows = md1(100, 0.5, 1)
    arrival = rows["arrival_s"]
    by_time = kept_window(rows, TrimSection(by="time", start=20.0, end=30.0))
    inside = (arrival >= arrival[0] + 20) & (arrival < arrival[-1] - 30)
    assert len(trimmed(rows, by_time)["arrival_s"]) == inside.sum()
    by_count = kept_window(rows, TrimSection(by="count", start=10.0, end=15.0))
    assert list(trimmed(rows, by_count)["request_id"]) == list(range(10, 85))
    assert len(trimmed(rows, kept_window(rows, None))["request_id"]) == 100


@pytest.mark.parametrize(("by", "start", "end"), [("time", 1e6, 0), ("count", 60, 50)])
def test_trimming_everything_is_refused(by, start, end):
    with pytest.raises(StudyError, match="leave none of 100 requests"):
        kept_window(md1(100, 0.5, 1), TrimSection(by=by, start=float(start), end=float(end)))


def test_mser_cuts_a_transient_and_little_else():
    rng = np.random.Generator(np.random.PCG64(1))
    noise = rng.standard_normal(1000)
    transient = np.where(np.arange(1000) < 200, 5.0 * (1 - np.arange(1000) / 200), 0.0)
    assert 120 <= mser(noise + transient) <= 260
    assert mser(noise) <= 250
    assert mser(np.ones(7)) == 0


def test_mser_trims_the_beginning_of_a_run():
    extra = np.zeros(2000)
    extra[0] = 100.0
    rows = md1(2000, 0.7, 3, extra)
    window = kept_window(rows, TrimSection(by="mser"))
    first = trimmed(rows, window)["request_id"][0]
    assert 100 <= first <= 600  # a backlog of 100 s drains at 0.3 a second: about 233 arrivals


def test_steady_runs_pass_and_others_say_why():
    steady = [steadiness(r, kept_window(r, None)) for r in (md1(3000, 0.6, s) for s in range(30))]
    assert np.mean([s.is_steady for s in steady]) >= 0.9
    rows = md1(2000, 1.5, 1)
    overloaded = steadiness(rows, kept_window(rows, None))
    assert "backlog grows by 0.5" in overloaded.reasons[0]
    few = steadiness(md1(50, 0.5, 1), Window(0.0, 1e9))
    assert "100 are needed" in few.reasons[0]


@pytest.mark.parametrize(
    ("load", "mode", "is_said"),
    [(0.6, OpenLoad(), False), (1.5, OpenLoad(), True), (1.5, ClosedLoad(4, 500), False)],
)
def test_a_run_says_when_more_comes_than_is_served(load, mode, is_said):
    """Steps of 1 s, one request in each: M/D/1. Clients who wait for answers can't overload it."""
    requests = [
        RequestSpec(i, float(arrival_s), 8, 1)
        for i, arrival_s in enumerate(md1(2000, load, 1)["arrival_s"])
    ]
    scheduler = SchedulerConfig(max_num_seqs=1)
    study = make_study(requests, scheduler, CacheConfig(100), ConstantCost(1.0), load=mode)
    said = [w for w in simulate(study).info.warnings if w.startswith("requests pile up")]
    assert bool(said) == is_said


def test_a_run_that_begins_with_a_backlog_is_not_steady():
    extra = np.zeros(3000)
    extra[0] = 500.0
    rows = md1(3000, 0.5, 3, extra)
    judged = steadiness(rows, kept_window(rows, None))
    assert not judged.is_steady
    assert "a transient" in " ".join(judged.reasons)


def lives(life_s: np.ndarray) -> dict[str, np.ndarray]:
    """Ten requests a second, each in the system for its time."""
    arrival_s = np.arange(len(life_s)) / 10
    return {
        "arrival_s": arrival_s,
        "last_token_s": arrival_s + life_s,
        "state": np.full(len(life_s), "finished"),
    }


def test_a_batch_that_fills_within_the_window_is_not_steady():
    """Lives of 1 s, from half time on of 15 s: the number goes from 10 to 150, while 500 arrive,
    so that the window's completions are 28 % fewer than its arrivals.
    """
    filling = lives(np.where(np.arange(1000) < 500, 1.0, 15.0))
    said = unsettled(filling, Window(25.0, 75.0))
    assert said.startswith("requests in the system go from 10 to 150 within the steady window, ")
    assert "in which 500 arrive" in said
    assert not_steady(filling, "open", Window(25.0, 75.0))
    assert unsettled(lives(np.full(1000, 15.0)), Window(25.0, 75.0)) == ""


def test_a_change_as_chance_makes_it_is_no_sign_of_a_filling_batch():
    """From 100 to 115 while 200 arrive is 7 %, and one standard deviation: sqrt(2 * 115) = 15."""
    changing = lives(np.where(np.arange(600) < 300, 10.0, 11.5))
    assert unsettled(changing, Window(20.0, 40.0)) == ""


def test_independent_requests_are_hardly_ever_called_unsettled():
    """Poisson arrivals whose lives are independent: the number changes by chance alone."""

    def run(seed):
        rng = np.random.Generator(np.random.PCG64(seed))
        arrival_s = np.cumsum(rng.exponential(0.1, 1500))
        life_s = rng.exponential(20.0, 1500)
        state = np.full(1500, "finished")
        return {"arrival_s": arrival_s, "last_token_s": arrival_s + life_s, "state": state}

    runs = [run(seed) for seed in range(200)]
    windows = [Window(0.5 * r["arrival_s"][-1], 0.9 * r["arrival_s"][-1]) for r in runs]
    found = [bool(unsettled(r, w)) for r, w in zip(runs, windows, strict=True)]
    assert np.mean(found) <= 0.1
