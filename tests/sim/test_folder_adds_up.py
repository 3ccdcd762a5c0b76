"""A run folder read as a stranger would, with pandas alone: its summary follows from its rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from calibration import LinearCost
from sim.folder_sink import FolderSink
from sim.result import staged_folder, write_about
from sim.run_result import Slo
from sim.scheduler.config import CacheConfig, SchedulerConfig
from sim.simulation import simulate
from tests.sim.small_study import make_study
from traces import RequestSpec

SLO = Slo(ttft_s=0.008, tpot_s=0.0052)


@pytest.fixture(scope="module", params=[1, 2])
def folder(request: Any, tmp_path_factory: Any) -> Path:
    """With requests of every state: finished, preempted, rejected, cut off at the end.

    Their ids are not their places, and a third of them give one token.
    """
    rng = np.random.Generator(np.random.PCG64(5))
    requests = [
        RequestSpec(
            3 * i + 7,
            float(at_s),
            9_000 if i % 50 == 49 else int(rng.integers(1, 300)),
            1 if i % 3 == 0 else int(rng.integers(2, 150)),
        )
        for i, at_s in enumerate(np.cumsum(rng.exponential(0.05, 400)))
    ]
    scheduler = SchedulerConfig(max_num_seqs=32, max_num_batched_tokens=256, max_model_len=4096)
    cost = LinearCost(0.004, 1e-5, 1e-8, 1e-5)
    cache = CacheConfig(90)
    study = make_study(
        requests, scheduler, cache, cost, num_replicas=request.param, slo=SLO, until_s=18.0
    )
    place: Path = tmp_path_factory.mktemp("run") / "folder"
    with staged_folder(place, False) as stage:
        with FolderSink(stage) as sink:
            result = simulate(study, sink=sink)
        write_about(result, stage, plots=False)
    return place


@pytest.fixture
def rows(folder: Path) -> pd.DataFrame:
    return pd.read_parquet(folder / "requests.parquet")


@pytest.fixture
def summary(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return found


def test_there_is_something_of_everything(rows: pd.DataFrame) -> None:
    assert {*rows["state"]} == {"finished", "rejected", "unfinished"}
    assert rows["num_preemptions"].sum() > 0
    assert (rows["num_output_tokens"] == 1).any()


def test_each_request_is_there_once(rows: pd.DataFrame, summary: dict[str, Any]) -> None:
    assert rows["request_id"].is_unique
    counts = rows["state"].value_counts()
    for state in ("finished", "rejected", "unfinished"):
        assert summary["requests"][f"{state}_requests"] == counts[state]
    assert summary["requests"]["arrived_requests"] == len(rows)


def test_latencies_of_the_summary_are_those_of_the_rows(
    rows: pd.DataFrame, summary: dict[str, Any]
) -> None:
    """And a count is that of the requests which have such a latency, no more."""
    done = rows[rows["state"] == "finished"]
    several = done[done["num_output_tokens"] > 1]
    e2e_s = done["last_token_s"] - done["arrival_s"]
    expected = {
        "ttft_s": done["first_token_s"] - done["arrival_s"],
        "e2e_s": e2e_s,
        "queue_time_s": done["first_scheduled_s"] - done["arrival_s"],
        "tpot_s": (several["last_token_s"] - several["first_token_s"])
        / (several["num_output_tokens"] - 1),
    }
    for name, values in expected.items():
        found = summary["latency"][name]
        assert found["count"] == len(values)
        assert found["mean"] == pytest.approx(values.mean(), rel=1e-12)
        assert found["max"] == values.max()
        for percent in (50, 90, 95, 99):
            assert found[f"p{percent}"] == pytest.approx(np.percentile(values, percent), rel=1e-12)
        own = rows.loc[values.index, name]
        assert np.array_equal(own, values)
    assert summary["latency"]["itl_s"]["count"] == (done["num_output_tokens"] - 1).sum()
    itl_s = summary["latency"]["itl_s"]["mean"] * summary["latency"]["itl_s"]["count"]
    assert expected["ttft_s"].sum() + itl_s == pytest.approx(e2e_s.sum(), rel=1e-9)


def test_throughput_and_goodput_are_those_of_the_rows(
    rows: pd.DataFrame, summary: dict[str, Any]
) -> None:
    done = rows[rows["state"] == "finished"]
    span_s = done["last_token_s"].max() - rows["arrival_s"].min()
    found = summary["throughput"]
    assert found["requests_per_s"] == pytest.approx(len(done) / span_s)
    assert found["output_tokens_per_s"] == pytest.approx(done["num_output_tokens"].sum() / span_s)
    assert found["input_tokens_per_s"] == pytest.approx(done["num_prompt_tokens"].sum() / span_s)
    is_good = (done["ttft_s"] <= SLO.ttft_s) & ~(done["tpot_s"] > SLO.tpot_s)
    assert 0 < is_good.sum() < len(done)
    assert summary["goodput"]["good_requests"] == is_good.sum()
    assert summary["goodput"]["good_share_of_arrived"] == pytest.approx(is_good.sum() / len(rows))


def test_lengths_are_the_realised_ones(rows: pd.DataFrame, summary: dict[str, Any]) -> None:
    done = rows[rows["state"] == "finished"]
    for name in ("prompt_tokens", "output_tokens"):
        column = done[f"num_{name}"]
        assert summary["lengths"][name]["count"] == len(column)
        assert summary["lengths"][name]["mean"] == pytest.approx(column.mean())
        assert summary["lengths"][name]["max"] == column.max()
