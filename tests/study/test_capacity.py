"""Capacity against M/D/1 queues, where formulas know the answer, and what is refused."""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest

from calibration import CalibrationError
from sim.cli.app import run_app
from sim.config import resolve_study
from sim.errors import StudyError
from sim.run_result import Slo
from sim.simulation import simulate
from sim.study.bracket import largest_rate, smallest_count
from sim.study.capacity import Search, run_search
from sim.study.capacity_folder import read_capacity
from sim.study.capacity_interval import rate_interval
from sim.study.gpu_costs import parse_prices, watts
from sim.study.pareto import pareto_front
from sim.study.probe import judge
from sim.study.slo import Limit, parse_limit, parse_limits, requests_needed
from sim.study.sweep_section import TrimSection
from tests.study.studies import chat_study, queue_study, write_study

MEAN_3 = (Limit("ttft_mean_s", 3.0),)
"""M/D/1 with one second of service: mean 1 + r / (2 (1 - r)) = 3 at r = 0.8."""


@dataclass(frozen=True)
class Step:
    is_ok: bool
    is_alone: bool = False
    is_at_once: bool = False


@pytest.mark.parametrize("truth", [0.013, 0.9, 1.0, 7.7, 5000.0])
def test_a_rate_is_bracketed_to_the_tolerance(truth):
    found = largest_rate(lambda rate: Step(rate <= truth), 1.0, 0.01)
    assert found.best <= truth < found.first_bad <= 1.01 * found.best
    assert len(found.probes) < 30


@pytest.mark.parametrize("truth", [1, 2, 3, 17, 31, 64])
def test_the_smallest_count_is_exact_and_one_is_always_tried(truth):
    found = smallest_count(lambda count: Step(count >= truth), 64)
    assert found.best == truth
    assert found.first_bad == (truth - 1 or None)
    assert 1 in found.probes


def test_no_count_may_do():
    assert smallest_count(lambda _: Step(False), 10).best is None


@pytest.fixture(scope="module")
def rates():
    return [
        run_search(Search("rate", "q", queue_study(1500, 0.3), MEAN_3, seed)) for seed in range(2)
    ]


def test_the_rate_of_a_queue_is_the_formula_s(rates):
    for found in rates:
        assert found.value == pytest.approx(0.8, abs=0.06)
        assert found.value < found.next_bad <= 1.021 * found.value
    interval = rate_interval(rates)
    assert interval.low < np.mean([f.value for f in rates]) < interval.high


def test_every_probe_is_told_and_consistent(rates):
    found = rates[0]
    for probe in found.probes:
        assert probe.is_ok == (probe.arrival_rate_per_s <= found.value)
        assert (
            probe.measured[0]
            == pytest.approx(
                1 + probe.arrival_rate_per_s / (2 * (1 - probe.arrival_rate_per_s)), rel=0.25
            )
            or probe.arrival_rate_per_s > 0.85
        )


def test_the_fewest_replicas_of_split_poisson_are_the_formula_s():
    """3.5 a second split at random: each replica M/D/1, and 5 are the first with r <= 0.8."""
    found = run_search(Search("replicas", "q", queue_study(1500, 3.5), MEAN_3, 1))
    assert found.value == math.ceil(3.5 / 0.8) == 5
    assert found.next_bad == 4


def test_longer_steps_lower_the_rate_in_proportion():
    """r = rate * service and E2E = service * f(r): at 1.25 s, f(r) = 2.4, r = 2.8 / 3.8."""
    search = Search("rate", "q", queue_study(1500, 0.3), MEAN_3, 1, step_time_factor=1.25)
    assert run_search(search).value == pytest.approx(2.8 / 3.8 / 1.25, abs=0.06)


def capacity(tmp_path, values, *arguments):
    return run_app(["capacity", str(write_study(tmp_path, values)), *arguments])


def test_nothing_meets_an_impossible_limit(tmp_path, capsys):
    arguments = ("--slo", "ttft_mean_s=0.5")
    assert capacity(tmp_path, queue_study(150, 0.5), *arguments) == 1
    said = capsys.readouterr().out
    assert "nothing meets the limits" in said
    assert "ttft_mean_s <= 0.5 but it is 1" in said


def test_everything_meets_a_loose_limit(tmp_path, capsys):
    """A limit beyond what all requests at once would wait: the backlog, not the limit, says no."""
    arguments = ("--slo", "ttft_mean_s=1000000")
    code = capacity(tmp_path, chat_study(100), *arguments)
    captured = capsys.readouterr()
    assert code == 2
    assert "too short" in captured.err


def test_too_few_requests_for_a_percentile_are_refused(tmp_path, capsys):
    assert capacity(tmp_path, chat_study(200), "--slo", "ttft_p99_s=1") == 2
    assert "1,000 are needed" in capsys.readouterr().err


def test_a_trace_shorter_than_its_requests_is_refused_with_the_length(tmp_path, capsys):
    """100 requests that live long: at the rate found, all are in the system together."""
    values = chat_study(100, slo={"tpot_s": 0.02})
    values["trace"]["generator"]["output_tokens"] = {"median": 300.0}
    assert capacity(tmp_path, values, "--slo", "tpot_mean_s=0.007") == 2
    assert "are needed" in capsys.readouterr().err


def test_the_command_prints_probes_prices_and_power(tmp_path, capsys):
    arguments = ("--find", "replicas", "--slo", "ttft_mean_s=3", "--price", "h100=2.5", "--out",
                 str(tmp_path / "out"))  # fmt: skip
    assert capacity(tmp_path, queue_study(400, 1.3), *arguments) == 0
    said = capsys.readouterr().out
    assert said.startswith("looking for the fewest replicas with ")
    assert "tried 1 replica at " in said and "tried 2 replicas at " in said
    assert "2 replicas meet the limits, 1 does not; that is 2 GPUs, at most 1,400 W" in said
    assert "5.00 dollars an hour (43,800 a year)" in said
    row = pd.read_csv(tmp_path / "out" / "capacity.csv").iloc[0]
    assert (row["value"], row["gpus"], row["dollars_an_hour"]) == (2, 2, 5.0)


CLOSED = "load={mode: closed, concurrency: 2}"
WRONG = {
    "no limit": ([], "no limit to meet"),
    "unknown metric": (["--slo", "tfft_p99_s=1"], "did you mean 'ttft_p99_s'"),
    "no number": (["--slo", "ttft_p99_s=fast"], "not a positive number"),
    "share": (["--slo", "goodput_share=95"], "at most 1"),
    "share without slo": (["--slo", "goodput_share=0.9"], "no slo section"),
    "find": (["--slo", "ttft_mean_s=1", "--find", "gpus"], "rate or replicas"),
    "price": (["--slo", "ttft_mean_s=1", "--price", "h100=cheap"], "dollars an hour"),
    "gpu": (["--slo", "ttft_mean_s=1", "--price", "h1000=2"], "h1000"),
    "price of a rate": (["--slo", "ttft_mean_s=1", "--price", "h100=2"], "only --find replicas"),
    "stopped": (["--slo", "ttft_mean_s=1", "--set", "until_s=3"], "until_s: a search runs every"),
    "closed": (["--slo", "ttft_mean_s=1", "--set", CLOSED], "closed load"),
}


@pytest.mark.parametrize("name", WRONG)
def test_bad_input_is_one_sentence(tmp_path, capsys, name):
    arguments, said = WRONG[name]
    assert capacity(tmp_path, chat_study(120), *arguments) == 2
    assert said in capsys.readouterr().err


def test_limits_are_read_and_count_their_requests():
    assert str(parse_limit("ttft_p99.9_s <= 0.5")) == "ttft_p99.9_s <= 0.5"
    assert requests_needed([parse_limit("ttft_p99_s=1")]) == 1000
    assert requests_needed([parse_limit("ttft_p99.9_s=1")]) == 10_000
    assert requests_needed([parse_limit("ttft_mean_s=1")]) == 100
    assert parse_limits([], Slo(ttft_s=1.0)) == (Limit("goodput_share", 0.95),)
    with pytest.raises(StudyError):
        parse_limits([], Slo())


def test_prices_and_power_are_of_the_named_gpu():
    assert parse_prices(["h100=2.5"]) == {"h100-sxm-80gb": 2.5}
    assert watts("h100-sxm-80gb", 3) == 2100
    with pytest.raises(CalibrationError, match="something else"):
        watts("something else", 1)


def test_the_front_has_no_point_that_another_beats():
    cost = [1, 2, 2, 3, 4, np.nan, 4]
    latency = [9, 5, 4, 4, 1, 0, 1]
    assert list(pareto_front(cost, latency)) == [0, 2, 4]
    rng = np.random.Generator(np.random.PCG64(1))
    x, y = rng.random((2, 300))
    front = pareto_front(x, y)
    for row in range(300):
        beaten = ((x <= x[row]) & (y <= y[row]) & ((x < x[row]) | (y < y[row]))).any()
        assert (row in front) == (not beaten)


def test_what_the_runs_warn_of_stands_beside_the_answer(tmp_path, capsys):
    """A quarter of the prompts are longer than max_model_len: the rate counts them, so it is
    said. The same goes for the commands that compare runs.
    """
    values = chat_study(120, engine={"max_model_len": 300})
    short = ("--slo", "ttft_mean_s=0.5", "--accept-short", "--jobs", "1")
    assert capacity(tmp_path, values, *short, "--out", str(tmp_path / "c")) == 0
    assert "requests were rejected at arrival, being longer than" in capsys.readouterr().out
    (answer,) = read_capacity(tmp_path / "c")["answers"]
    states = simulate(resolve_study(values, "s")).requests["state"]
    share = f"{(states == 'rejected').mean():.1%} of the requests are REFUSED"
    assert 0.1 < (states == "rejected").mean() < 0.4 and share in answer["sentence"]
    assert "requests were rejected at arrival" in answer["warnings"][0]
    study = str(write_study(tmp_path, values))
    grid, out = ("--grid", "engine.max_num_seqs=2,64", "--jobs", "1"), str(tmp_path / "s")
    assert run_app(["sweep", study, *grid, "--out", out]) == 0
    said = capsys.readouterr().out
    assert "requests were rejected at arrival" in said and "2 of 2 runs warn" in said
    pair = ("--key", "engine.max_num_seqs=2,64", "--seeds", "1", "--jobs", "1")
    assert run_app(["compare", study, *pair, "--out", str(tmp_path / "p")]) == 0
    said = capsys.readouterr().out
    assert "note: A, seed 0: " in said and "requests were rejected at arrival" in said


def test_a_probe_is_judged_by_the_requests_that_trimming_keeps():
    """One request a second, two arrive: request i has a TTFT of 1 + i / 2 s, so that the mean of
    the requests 10 to 29 is 10.75 s.
    """
    values = queue_study(40, 1.0)
    del values["trace"]["poisson_rate_per_s"]
    values["trace"]["generator"] |= {"rate_per_s": 2.0, "cv": 0.0001}
    trim = TrimSection(by="count", start=10.0, end=10.0)
    probe = judge(1.0, resolve_study(values, "s"), MEAN_3, trim)
    assert probe.num_requests == 20
    assert probe.measured[0] == pytest.approx(1 + 19.5 / 2, abs=0.01)
