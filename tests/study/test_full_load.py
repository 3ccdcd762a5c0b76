"""The throughput of an overloaded run is the capacity, where a formula knows it.

With steps of one length, n sequences at a time and outputs of k tokens, a full replica gives n
tokens a step, whatever the load is and however short the arrivals.
"""

import numpy as np
import pandas as pd
import pytest

from sim.cli.app import run_app
from sim.config import resolve_study
from sim.simulation import simulate
from sim.study.full_load import full_load, lasting_rates
from sim.study.row import result_row
from tests.study.studies import chat_study, queue_study, write_study

SEQS, OUTPUT, STEP_S = 8, 20, 0.05
TOKENS_PER_S = SEQS / STEP_S
CAPACITY = TOKENS_PER_S / OUTPUT  # requests/s of one replica


def batch_study(num_requests, load, replicas=1, sigma=0.0, is_async=False):
    """Arrivals at `load` times the capacity of all replicas."""
    values = queue_study(num_requests, load * CAPACITY * replicas)
    values["trace"]["generator"]["output_tokens"] = {"median": float(OUTPUT), "sigma": sigma}
    return values | {
        "engine": {
            "max_num_seqs": SEQS,
            "enable_prefix_caching": False,
            "async_scheduling": is_async,
        },
        "cost_model": {"kind": "constant", "step_s": STEP_S},
        "router": "round-robin",
        "replicas": replicas,
    }


def row_of(values):
    study = resolve_study(values, "x")
    return result_row(study, simulate(study))


@pytest.mark.parametrize("replicas", [1, 3])
@pytest.mark.parametrize("load", [1.5, 4.0, 40.0, 1000.0])
def test_an_overloaded_point_has_the_throughput_of_the_full_batch(load, replicas):
    row = row_of(batch_study(200 * replicas, load, replicas))
    assert row["load.is_saturated"]
    assert row["per_gpu.part"] == "full load"
    assert row["per_gpu.output_tokens_per_s"] == pytest.approx(TOKENS_PER_S, rel=0.01)
    assert row["per_gpu.requests_per_s"] == pytest.approx(CAPACITY, rel=0.01)


@pytest.mark.parametrize("load", [1.5, 1000.0])
def test_with_async_scheduling_a_sequence_s_place_is_free_one_step_later(load):
    """A request that ends still has its place when the next step is decided: n k / (k + 1)."""
    row = row_of(batch_study(400, load, is_async=True))
    expected = TOKENS_PER_S * OUTPUT / (OUTPUT + 1)
    assert row["per_gpu.output_tokens_per_s"] == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("load", [2.0, 100.0])
def test_unequal_lengths_change_nothing(load):
    """The batch stays full, so it still gives n tokens a step."""
    row = row_of(batch_study(400, load, sigma=0.8))
    assert row["per_gpu.output_tokens_per_s"] == pytest.approx(TOKENS_PER_S, rel=0.01)


def test_an_overloaded_m_d_1_queue_serves_one_a_second():
    row = row_of(queue_study(200, 3.0))
    assert row["per_gpu.requests_per_s"] == pytest.approx(1.0, rel=0.01)


def test_below_capacity_what_arrives_is_served():
    row = row_of(batch_study(3000, 0.6))
    assert row["per_gpu.part"] == "steady window" and not row["per_gpu.too_short"]
    assert row["per_gpu.output_tokens_per_s"] == pytest.approx(0.6 * TOKENS_PER_S, rel=0.06)


def test_a_run_that_never_fills_for_long_has_no_throughput_and_says_what_it_needs():
    row = row_of(batch_study(20, 50.0))
    result = simulate(resolve_study(batch_study(20, 50.0), "x"))
    rates = lasting_rates(result, True, {})
    assert rates.output_tokens_per_s is None
    assert f"about {4 * SEQS} requests are needed" in rates.too_short
    # 20 requests are too few to be judged saturated, but they all come within one life.
    assert "less than 4 times the mean E2E" in row["per_gpu.too_short"]


def test_more_arrivals_than_full_replicas_serve_are_an_overload_however_slow_the_backlog_grows():
    """4 % over capacity: the backlog's trend drowns in chance, the rates do not."""
    values = batch_study(600, 1.04)
    values["trace"]["poisson_rate_per_s"] = None
    values["trace"]["generator"] |= {"rate_per_s": 1.04 * CAPACITY, "cv": 0.05}
    row = row_of(values)
    assert row["load.is_saturated"]
    assert row["per_gpu.output_tokens_per_s"] == pytest.approx(TOKENS_PER_S, rel=0.01)
    values["trace"]["generator"]["rate_per_s"] = 0.96 * CAPACITY
    assert not row_of(values)["load.is_saturated"]


def test_as_many_requests_as_it_says_are_enough():
    result = simulate(resolve_study(batch_study(4 * SEQS, 50.0), "x"))
    found = full_load(result.requests, result.steps, result.info.replicas)
    assert found.output_tokens_per_s == pytest.approx(TOKENS_PER_S, rel=0.05)


def test_an_idle_replica_is_never_full():
    values = batch_study(300, 3.0, replicas=2)
    result = simulate(resolve_study(values, "x"))
    busy = result.steps["replica"] == 0
    steps = {name: column[busy] for name, column in result.steps.items()}
    assert full_load(result.requests, steps, result.info.replicas) is None


def test_a_moment_without_waiting_requests_does_not_end_full_load():
    result = simulate(resolve_study(batch_study(400, 50.0), "x"))
    steps = dict(result.steps)
    middle = len(steps["step"]) // 2
    steps["num_waiting"] = np.where(
        np.arange(len(steps["step"])) == middle, 0, steps["num_waiting"]
    )
    whole = full_load(result.requests, result.steps, result.info.replicas)
    assert full_load(result.requests, steps, result.info.replicas).windows == whole.windows


def test_the_curve_rises_to_the_capacity_and_stays_there(tmp_path, capsys):
    study = write_study(tmp_path, batch_study(400, 0.5))
    rates = [load * CAPACITY for load in (0.3, 0.6, 1.5, 5.0, 50.0)]
    arguments = ("--rates", ",".join(map(str, rates)), "--jobs", "1", "--out", str(tmp_path / "o"))
    assert run_app(["curve", str(study), *arguments]) == 0
    data = pd.read_csv(tmp_path / "o" / "curve.csv")
    found = data["output_tokens_per_s_per_gpu"]
    assert list(data["is_saturated"]) == [False, False, True, True, True]
    assert found[:2].to_numpy() == pytest.approx(TOKENS_PER_S * np.array([0.3, 0.6]), rel=0.15)
    assert found[2:].to_numpy() == pytest.approx(np.full(3, TOKENS_PER_S), rel=0.01)
    assert "every replica is full" in capsys.readouterr().out


def test_the_curve_leaves_out_what_is_too_short_and_says_so(tmp_path, capsys):
    study = write_study(tmp_path, batch_study(12, 0.5))
    rates = f"{0.2 * CAPACITY},{1000 * CAPACITY}"
    arguments = ("--rates", rates, "--jobs", "1", "--out", str(tmp_path / "o"))
    assert run_app(["curve", str(study), *arguments]) == 0
    data = pd.read_csv(tmp_path / "o" / "curve.csv")
    assert np.isfinite(data["output_tokens_per_s_per_gpu"][0])
    assert np.isnan(data["output_tokens_per_s_per_gpu"][1])
    assert "no throughput, the run is too short" in capsys.readouterr().out


def test_a_batch_that_still_fills_has_no_lasting_throughput():
    """Llama-3.1-8B on an H100 at 25, 30 and 40 requests a second, of which some 26 can be served:
    at 30 nobody waits for long, the batch fills for most of the run, and the steady window gives
    fewer tokens than at 25. Whatever throughput is shown may not fall as load rises.
    """
    values = chat_study(1500, cost_model={"kind": "auto"}, engine={"max_model_len": 10_000}, seed=5)
    values["trace"]["generator"] |= {
        "rate_per_s": 8.0,
        "prompt_tokens": {"median": 900.0, "sigma": 0.8, "highest": 8000},
        "output_tokens": {"median": 60.0, "sigma": 1.0, "highest": 800},
    }
    rows = []
    for rate_per_s in (25.0, 30.0, 40.0):
        values["trace"]["poisson_rate_per_s"] = rate_per_s
        rows.append(row_of(values))
    assert "a longer run is needed" in rows[1]["per_gpu.too_short"]
    shown = [row["per_gpu.output_tokens_per_s"] for row in rows if not row["per_gpu.too_short"]]
    assert len(shown) == 2 and shown == sorted(shown)
