"""`headway curve` and `headway advise` as a user has them."""

import re

import pandas as pd
import pytest

from sim.cli.app import run_app
from sim.config import load_study
from sim.study.advise import advise, notable
from sim.study.curve import load_grid
from sim.study.plan import load_plan
from tests.study.studies import chat_study, queue_study, write_study

GRID = ("--grid", "engine.max_num_seqs=2,64")


def test_a_curve_is_a_figure_and_its_data(tmp_path, capsys):
    study = write_study(tmp_path, chat_study(120, slo={"ttft_s": 0.05}))
    out = tmp_path / "out"
    arguments = ("--rates", "10,30,90", "--jobs", "1", *GRID, "--out", str(out))
    assert run_app(["curve", str(study), *arguments]) == 0
    data = pd.read_csv(out / "curve.csv")
    assert list(data["configuration"].unique()) == ["max_num_seqs 2", "max_num_seqs 64"]
    assert list(data["arrival_rate_per_s"][:3].round(6)) == [10, 30, 90]
    assert (out / "curve.png").stat().st_size > 20_000
    assert (out / "curve.pdf").read_bytes().startswith(b"%PDF")
    assert "saturated: more arrives than is served" in capsys.readouterr().out


def test_a_curve_over_clients(tmp_path, capsys):
    study = write_study(tmp_path, chat_study(60))
    out = tmp_path / "out"
    arguments = ("--concurrency", "1,4,16", "--jobs", "1", "--out", str(out))
    assert run_app(["curve", str(study), *arguments]) == 0
    data = pd.read_csv(out / "curve.csv")
    assert list(data["load"]) == [1, 4, 16]
    assert data["output_tokens_per_s_per_gpu"].is_monotonic_increasing
    assert not data["is_saturated"].any()
    said = capsys.readouterr().out
    rates = data["arrival_rate_per_s"]
    for words, rate in zip(("1 client", "4 clients", "16 clients"), rates, strict=True):
        assert f"  {words}, {rate:.3g} requests/s: " in said


def test_rates_are_met_whatever_the_trace_s_own():
    assert load_grid(queue_study(10, 0.5), [1.0, 2.0]) == {"trace.poisson_rate_per_s": [1.0, 2.0]}
    ((key, scales),) = load_grid(chat_study(200), [5.0, 10.0]).items()
    assert key == "trace.rate_scale" and scales[1] == pytest.approx(2 * scales[0])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "one of --rates"),
        (["--rates", "1", "--concurrency", "1"], "one of --rates"),
        (["--rates", "0,1"], "positive numbers"),
        (["--rates", "fast"], "positive numbers"),
        (["--rates", "1", "--measured", "none.csv"], "can't be read"),
    ],
)
def test_bad_loads_are_one_sentence(tmp_path, capsys, arguments, said):
    assert run_app(["curve", str(write_study(tmp_path, chat_study())), *arguments]) == 2
    assert said in capsys.readouterr().err


def test_advice_is_studies_that_run_and_say_why(tmp_path, capsys):
    """One request at a time is slow and dear, so only the 64 at a time are advised."""
    study = write_study(tmp_path, chat_study(120))
    out = tmp_path / "out"
    grid = ("--grid", "replicas=1,2", "--grid", "engine.max_num_seqs=1,64")
    arguments = (*grid, "--price", "h100=2.5", "--jobs", "1", "--out", str(out))
    assert run_app(["advise", str(study), *arguments]) == 0
    said = capsys.readouterr().out
    assert "the cheapest of all" in said and "limited by" in said and "dollars" in said
    advised = [load_study(path) for path in sorted((out / "advice").glob("*.yaml"))]
    assert 1 <= len(advised) <= 3
    assert all(study.engine.scheduler.max_num_seqs == 64 for study in advised)
    assert (out / "pareto.png").stat().st_size > 10_000


def test_near_ties_are_not_advised_apart():
    assert notable([4, 1, 2, 3], [9.0, 0.97, 0.9, 0.89, 1.0]) == [4, 2]


def test_settings_that_fail_are_left_out_with_the_error(tmp_path, capsys):
    """Three GPUs can't share the model's heads."""
    study = write_study(tmp_path, chat_study(30))
    grid = ("--grid", "engine.tensor_parallel_size=1,3")
    arguments = (*grid, "--jobs", "1", "--out", str(tmp_path / "out"))
    assert run_app(["advise", str(study), *arguments]) == 0
    out = capsys.readouterr().out
    assert "left out: engine.tensor_parallel_size 3: it failed: " in out
    assert "1. engine.tensor_parallel_size 1\n" in out


def test_no_setting_may_be_worth_advising(tmp_path, capsys):
    """Twice the load that a queue can bear: every setting is overloaded."""
    study = write_study(tmp_path, queue_study(300, 2.0))
    arguments = ("--grid", "engine.max_num_seqs=1", "--jobs", "1", "--out", str(tmp_path / "out"))
    assert run_app(["advise", str(study), *arguments]) == 1
    out = capsys.readouterr().out
    assert "no setting can be advised" in out
    assert "left out: engine.max_num_seqs 1: more arrives than it serves" in out


@pytest.mark.parametrize("slo", [{}, {"e2e_s": 1.5}])
def test_settings_that_miss_the_slo_are_left_out(tmp_path, capsys, slo):
    """M/D/1 with 1 s of service: P(wait <= t) = (1 - rho) exp(rate * t) below 1 s. So within 1.5 s
    end 64 % of requests at a load of 0.5, and 98.7 % on twenty replicas.
    """
    study = write_study(tmp_path, queue_study(400, 0.5, slo=slo))
    arguments = ("--grid", "replicas=1,20", "--jobs", "1", "--out", str(tmp_path / "out"))
    assert run_app(["advise", str(study), *arguments]) == 0
    out = capsys.readouterr().out
    assert ("1. replicas 20" in out) == bool(slo) and ("1. replicas 1\n" in out) != bool(slo)
    found = re.search(r"left out: replicas 1: (\S+) % of the requests meet the slo \((.*)\)", out)
    assert (found is not None) == bool(slo)
    if found is not None:
        assert float(found[1]) == pytest.approx(64, abs=10) and found[2] == "E2E <= 1.5 s"


def test_the_cost_of_a_million_tokens_is_that_of_the_gpus_and_the_load(tmp_path, capsys):
    """One token every two seconds, evenly: 1e6 tokens take 2e6 seconds, which are 555.6 hours of
    one GPU at 2 dollars, and as many of each of two.
    """
    study = queue_study(200, 0.5)
    study["trace"]["generator"] |= {"rate_per_s": 0.5, "cv": 0.001}
    del study["trace"]["poisson_rate_per_s"]
    path = write_study(tmp_path, study)
    arguments = ("--grid", "replicas=1,2", "--latency", "ttft_mean_s", "--jobs", "1")
    out = tmp_path / "out"
    assert run_app(["advise", str(path), *arguments, "--price", "h100=2", "--out", str(out)]) == 0
    (cost,) = re.findall(r"([\d,]+) dollars a million output", capsys.readouterr().out)
    assert float(cost.replace(",", "")) == pytest.approx(2 * 2e6 / 3600, rel=0.01)
    plan, rows = load_plan(path, {"replicas": [1, 2]}), pd.read_parquet(out / "table.parquet")
    two = rows[rows["replicas"] == 2].to_dict("records")
    _, front = advise(plan, two, "latency.ttft_s.mean", {"h100-sxm-80gb": 2.0})
    assert front.cost[0] == pytest.approx(2 * 2 * 2e6 / 3600, rel=0.01)


def test_a_gpu_without_a_price_is_not_compared_as_if_it_had_one(tmp_path, capsys):
    study = write_study(tmp_path, chat_study(120))
    arguments = ("--grid", "hardware=h100,l40s", "--price", "h100=3", "--out", str(tmp_path / "o"))
    assert run_app(["advise", str(study), *arguments]) == 2
    assert "--price: l40s has none" in capsys.readouterr().err
    arguments = ("--find", "replicas", "--slo", "ttft_mean_s=1", *arguments)
    assert run_app(["capacity", str(study), *arguments]) == 2
    assert "--price: l40s has none" in capsys.readouterr().err


def test_a_run_too_short_for_its_throughput_is_not_advised(tmp_path, capsys):
    """All requests arrive within a fraction of the time that one of them takes."""
    values = chat_study(60)
    values["trace"]["generator"] |= {"rate_per_s": 5000.0, "output_tokens": {"median": 100.0}}
    study = write_study(tmp_path, values)
    arguments = ("--grid", "engine.max_num_seqs=200", "--jobs", "1", "--out", str(tmp_path / "out"))
    assert run_app(["advise", str(study), *arguments]) == 1
    assert "the run is too short: arrivals last" in capsys.readouterr().out
