"""A sweep as a user has it: rows, kept points, failures, executors, and `kill -9` in the middle."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sim.cli.app import run_app
from sim.cli.sweep_progress import Pace, progress_text
from sim.config import resolve_study
from sim.config.load import parse_study
from sim.errors import ResultError
from sim.metrics import summarise
from sim.simulation import simulate
from sim.study.fingerprint import fingerprint
from sim.study.plan import make_plan
from sim.study.point_store import PointStore
from sim.study.sweep import SweepProgress, run_sweep
from tests.study.studies import (
    HEADWAY,
    chat_study,
    environment,
    headway,
    queue_study,
    write_study,
)

GRID = {"engine.max_num_seqs": [4, 8], "trace.rate_scale": [1.0, 4.0]}


def study_with(tmp_path: Path, num_requests: int = 40, **sweep) -> Path:
    return write_study(tmp_path, {**chat_study(num_requests), "sweep": sweep})


def sweep(*arguments: str) -> int:
    return run_app(["sweep", *arguments])


def test_rows_are_the_runs(tmp_path, capsys):
    study = study_with(tmp_path, grid=GRID, seeds=2, executor="serial")
    assert sweep(str(study), "--out", str(tmp_path / "out")) == 0
    table = pd.read_parquet(tmp_path / "out" / "table.parquet")
    assert list(table["point"]) == list(range(8))
    assert (table["error"] == "").all()
    row = table.iloc[5]
    values = {**chat_study(40), "seed": 1, "engine": {"max_num_seqs": 8}}
    values["trace"]["rate_scale"] = 1.0
    assert (row["engine.max_num_seqs"], row["trace.rate_scale"], row["seed"]) == (8, 1.0, 1)
    summary = summarise(simulate(resolve_study(values, "x")))
    assert row["latency.ttft_s.p99"] == summary["latency"]["ttft_s"]["p99"]
    assert row["throughput.output_tokens_per_s"] == summary["throughput"]["output_tokens_per_s"]
    csv = pd.read_csv(tmp_path / "out" / "table.csv")
    assert list(csv.columns) == list(table.columns)
    assert np.allclose(csv["latency.e2e_s.mean"], table["latency.e2e_s.mean"], rtol=1e-12)


def test_a_second_run_does_nothing_and_writes_the_same(tmp_path, capsys):
    study = study_with(tmp_path, grid=GRID, executor="serial")
    arguments = (str(study), "--out", str(tmp_path / "out"))
    sweep(*arguments)
    first = (tmp_path / "out" / "table.parquet").read_bytes()
    capsys.readouterr()
    sweep(*arguments)
    assert "4 points: 0 run, 4 kept from before, 0 failed" in capsys.readouterr().out
    assert (tmp_path / "out" / "table.parquet").read_bytes() == first
    sweep(*arguments, "--grid", "engine.max_num_seqs=4,8,16")
    assert "6 points: 2 run, 4 kept from before" in capsys.readouterr().out


def test_every_executor_gives_the_same_bytes(tmp_path):
    study = study_with(tmp_path, grid=GRID)
    tables = []
    for executor in ("serial", "joblib"):
        sweep(str(study), "--executor", executor, "--jobs", "2", "--out", str(tmp_path / executor))
        tables.append((tmp_path / executor / "table.csv").read_bytes())
    assert tables[0] == tables[1]


@pytest.mark.parametrize(("executor", "module"), [("ray", "ray"), ("dask", "distributed")])
def test_a_cluster_gives_the_same_bytes(tmp_path, executor, module):
    pytest.importorskip(module, reason=f"the extra {executor} is not installed")
    study = study_with(tmp_path, grid={"engine.max_num_seqs": [4, 8]})
    sweep(str(study), "--executor", "serial", "--out", str(tmp_path / "here"))
    done = headway(
        tmp_path, "sweep", str(study), "--executor", executor, "--jobs", "1", "--out", "there"
    )
    assert done.returncode == 0, done.stderr
    here = (tmp_path / "here" / "table.csv").read_bytes()
    assert (tmp_path / "there" / "table.csv").read_bytes() == here


def test_an_executor_that_is_not_installed_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    study = study_with(tmp_path, grid=GRID)
    assert sweep(str(study), "--executor", "ray", "--out", str(tmp_path / "out")) == 2
    assert "pip install 'headway[ray]'" in capsys.readouterr().err


def test_a_point_that_fails_is_a_row_and_the_others_go_on(tmp_path, capsys):
    grid = {"engine.tensor_parallel_size": [1, 3]}  # 3 does not divide the heads of the model
    study = study_with(tmp_path, grid=grid, executor="serial")
    assert sweep(str(study), "--out", str(tmp_path / "out")) == 0
    table = pd.read_parquet(tmp_path / "out" / "table.parquet")
    assert table["error"][0] == ""
    assert "3" in table["error"][1]
    assert np.isnan(table["latency.ttft_s.mean"][1])
    assert "1 failed" in capsys.readouterr().out


def test_all_failing_is_a_failure(tmp_path):
    grid = {"engine.tensor_parallel_size": [3, 5]}
    study = study_with(tmp_path, grid=grid, executor="serial")
    assert sweep(str(study), "--out", str(tmp_path / "out")) == 1


def test_a_huge_grid_asks_first(tmp_path, capsys):
    study = study_with(tmp_path, grid={"engine.max_num_seqs": list(range(1, 1001))}, seeds=1000)
    assert sweep(str(study), "--out", str(tmp_path / "out")) == 2
    assert "1,000,000 points; give --yes" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_folder_with_other_things_is_left_alone(tmp_path, capsys):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    study = study_with(tmp_path, grid=GRID)
    assert sweep(str(study), "--out", str(tmp_path / "mine")) == 2
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


def test_a_misspelt_grid_leaves_an_earlier_sweep_as_it_is(tmp_path, capsys):
    study, out = study_with(tmp_path, grid=GRID, executor="serial"), tmp_path / "out"
    assert sweep(str(study), "--out", str(out)) == 0
    before = (out / "sweep.yaml").read_bytes()
    assert sweep(str(study), "--grid", "engine.max_num_sqs=1,2", "--out", str(out)) == 2
    assert "did you mean 'max_num_seqs'" in capsys.readouterr().err
    assert (out / "sweep.yaml").read_bytes() == before


def test_what_decides_a_run_decides_its_name(tmp_path, monkeypatch):
    trace = tmp_path / "t.csv"
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.68,374,44\n")

    def name(**changes):
        values = {**chat_study(), "trace": {"path": str(trace)}, **changes}
        return fingerprint(parse_study(values, "x"))

    first = name()
    assert name(name="other") == first
    assert name(engine={"max_model_len": None}) == first  # a default said aloud
    assert name(seed=1) != first
    assert name(engine={"watermark": 0.01}) != first
    monkeypatch.setattr("sim.study.fingerprint.code_version", lambda: "other code")
    assert name() != first
    monkeypatch.undo()
    trace.write_text(trace.read_text() + "2023-11-16 18:15:47.68,374,44\n")
    assert name() != first


def test_kept_points_that_are_broken_are_run_again(tmp_path):
    plan = make_plan({**chat_study(), "sweep": {"grid": GRID, "executor": "serial"}}, "x")
    store = PointStore(tmp_path)
    rows = run_sweep(plan, store).rows
    victim = sorted(tmp_path.glob("*.json"))[0]
    victim.write_text(victim.read_text()[:50])
    again = run_sweep(plan, store)
    assert (again.num_kept, again.rows) == (3, rows)


def test_a_full_disk_is_one_sentence(tmp_path):
    """A real refusal of the operating system: files may not grow beyond 64 bytes."""
    study = study_with(tmp_path, grid={"engine.max_num_seqs": [4]}, executor="serial")
    limited = "import resource, sys; from sim.cli.app import run_app; " + (
        "import sim.study.sweep; sim.study.sweep.simulate; "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64)); sys.exit(run_app(sys.argv[1:]))"
    )
    done = subprocess.run(
        [HEADWAY[0], "-c", limited, "sweep", str(study), "--out", str(tmp_path / "out")],
        env=environment(), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "can't be written" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list((tmp_path / "out").rglob("*.tmp"))


def test_a_store_that_can_not_be_made_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ResultError, match="can't be written"):
        PointStore(tmp_path / "file").write("x", {})


def test_kill_9_loses_at_most_what_was_in_flight(tmp_path):
    """A real SIGKILL of the whole process group; then a rerun completes to the same table."""
    grid = {"engine.max_num_seqs": [4, 6, 8, 10, 12, 14, 16, 18]}
    study = study_with(tmp_path, num_requests=150, grid=grid, jobs=2)
    points = tmp_path / "out" / "points"
    process = subprocess.Popen(
        [*HEADWAY, "sweep", str(study), "--out", str(tmp_path / "out")],
        env=environment(), start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while len(list(points.glob("*.json"))) < 3 and time.monotonic() < deadline:
        time.sleep(0.005)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    kept = list(points.glob("*.json"))
    assert 3 <= len(kept) < 8, "the sweep was too quick, or too slow, to be killed in the middle"
    assert not (tmp_path / "out" / "table.parquet").exists()
    for path in kept:
        assert json.loads(path.read_text())["error"] == ""  # whole, every one
    rerun = headway(tmp_path, "sweep", str(study), "--out", "out")
    expected = f"8 points: {8 - len(kept)} run, {len(kept)} kept from before, 0 failed"
    assert expected in rerun.stdout, rerun.stderr
    whole = headway(tmp_path, "sweep", str(study), "--out", "whole", "--executor", "serial")
    assert whole.returncode == 0
    table = (tmp_path / "out" / "table.csv").read_bytes()
    assert table == (tmp_path / "whole" / "table.csv").read_bytes()
    assert not list(points.glob("*.tmp"))


def test_the_time_left_comes_from_points_that_ran():
    """Two workers start in 10 s, and then every 2 s a point of 4 s ends."""
    pace = Pace()
    assert pace.remaining_s(SweepProgress(10, 20, 10, 0), 5.0) is None  # all kept from before
    assert pace.remaining_s(SweepProgress(11, 20, 10, 0), 14.0) is None
    assert pace.remaining_s(SweepProgress(12, 20, 10, 0), 16.0) == pytest.approx(16.0)
    assert pace.remaining_s(SweepProgress(19, 20, 10, 0), 30.0) == pytest.approx(2.0)


def test_progress_in_words():
    text = progress_text(SweepProgress(15, 1020, 10, 2), 1005.0)
    assert text == "15 of 1,020 points, 10 kept from before, 2 failed, about 16:45 left"
    assert progress_text(SweepProgress(20, 20, 0, 0), 0.0) == "20 of 20 points"


def test_trimming_leaves_the_ends_out_of_latencies(tmp_path):
    def mean_ttft(**trim):
        section = {"grid": {}, "executor": "serial", **({"trim": trim} if trim else {})}
        (row,) = run_sweep(make_plan({**chat_study(60), "sweep": section}, "x")).rows
        return row["latency.ttft_s.count"], row["latency.ttft_s.mean"]

    assert mean_ttft()[0] == 60
    assert mean_ttft(by="count", start=10.0, end=5.0)[0] == 45
    assert mean_ttft(by="time", start=1.0)[0] < 60


def test_trimming_leaves_the_ends_out_of_goodput_too():
    """A server of one request a second, two arrive: request i waits i/2 seconds, so 11 of 40 meet
    a limit of 6.4 seconds, and of the 20 in the middle one.
    """
    values = queue_study(40, 1.0, slo={"ttft_s": 6.4})
    del values["trace"]["poisson_rate_per_s"]
    values["trace"]["generator"] |= {"rate_per_s": 2.0, "cv": 0.0001}
    trim = {"by": "count", "start": 10.0, "end": 10.0}
    (whole,) = run_sweep(make_plan({**values, "sweep": serial()}, "x")).rows
    (middle,) = run_sweep(make_plan({**values, "sweep": serial(trim=trim)}, "x")).rows
    assert whole["goodput.good_share_of_arrived"] == pytest.approx(11 / 40)
    assert middle["goodput.good_share_of_arrived"] == pytest.approx(1 / 20)
    assert middle["lengths.prompt_tokens.count"] == 20
    assert "goodput.good_requests_per_s" not in middle


def serial(**section):
    return {"grid": {}, "executor": "serial", **section}
