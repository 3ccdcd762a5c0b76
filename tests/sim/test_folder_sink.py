"""Rows that go to disk while a run goes on are, byte for byte, those of the run in memory."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from calibration import LinearCost
from sim import result as run_folder
from sim._core import native
from sim.config import ResolvedStudy
from sim.folder_sink import FolderSink
from sim.metrics import summarise
from sim.scheduler.config import CacheConfig, SchedulerConfig
from sim.simulation import simulate
from tests.sim.small_study import make_study, run_unless_endless
from tests.sim.test_leap_equals_stepping import loads, options, workloads
from traces import RequestSpec

FILES = ("requests.parquet", "steps.parquet", "gaps.parquet", "summary.json", "config.yaml")
CORES = ["stepping", "leaping", *(["compiled"] if native is not None else [])]


def with_core(study: ResolvedStudy, core: str) -> ResolvedStudy:
    changes: dict[str, Any] = {"leap": core == "leaping"}
    if core == "compiled":
        changes["core"] = "compiled"
    return replace(study, engine=replace(study.engine, **changes))


def streamed(study: ResolvedStudy, folder: Path) -> None:
    with run_folder.staged_folder(folder, overwrite=True) as stage:
        with FolderSink(stage) as sink:
            result = simulate(study, sink=sink)
        run_folder.write_about(result, stage, plots=False)


@settings(
    max_examples=120,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(workloads(), options(), st.sampled_from(CORES), st.integers(1, 9), st.data())
def test_the_same_bytes(
    tmp_path: Path,
    requests: list[RequestSpec],
    chosen: dict[str, Any],
    core: str,
    rows: int,
    data: st.DataObject,
) -> None:
    """With few rows at once, so that they go to disk at many instants of a run."""
    study = with_core(
        make_study(requests, **chosen, load=data.draw(loads(len(requests))), leap=True), core
    )
    result = run_unless_endless(study)
    assume(result is not None)
    run_folder.save(result, tmp_path / "whole", plots=False, overwrite=True)
    kept_rows = data.draw(st.sampled_from([0, 20, 10_000]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sim.folder_sink._KEPT_ROWS", kept_rows)
        patch.setattr("sim.cluster._STEPS_AT_ONCE", rows)
        patch.setattr("sim.hand_over._REQUESTS_AT_ONCE", rows)
        patch.setattr("sim.simulation._EVENTS_AT_ONCE", rows)
        patch.setattr("sim.compiled_feed._ROWS_AT_ONCE", rows)
        streamed(study, tmp_path / "streamed")
    for name in FILES:
        whole, part = ((tmp_path / place / name).read_bytes() for place in ("whole", "streamed"))
        assert whole == part, name


def test_requests_wait_for_those_before_them(tmp_path: Path) -> None:
    """The first request is the last to end: all others' rows are kept until it has."""
    specs = [RequestSpec(0, 0.0, 4, 3000), *(RequestSpec(i, i * 0.1, 4, 2) for i in range(1, 50))]
    study = make_study(specs, SchedulerConfig(), CacheConfig(2000), LinearCost(0.01), leap=False)
    with pytest.MonkeyPatch.context() as patch, FolderSink(tmp_path) as sink:
        patch.setattr("sim.folder_sink._KEPT_ROWS", 0)
        patch.setattr("sim.cluster._STEPS_AT_ONCE", 10)
        patch.setattr("sim.hand_over._REQUESTS_AT_ONCE", 1)
        result = simulate(study, sink=sink)
    assert result.requests["request_id"].tolist() == list(range(50))
    assert summarise(result) == summarise(simulate(study))


def test_a_killed_run_leaves_no_folder_and_the_next_one_tidies_up(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sim.cli", "run", "--out", "here", "--no-plots"]
    many = [
        "--set",
        "trace.limit=2500",
        "--set",
        "engine.core=python",
        "--set",
        "engine.leap=false",
    ]
    with subprocess.Popen([*command, *many], cwd=tmp_path, stderr=subprocess.DEVNULL) as process:
        stages: list[Path] = []
        while not stages and process.poll() is None:
            stages = list(tmp_path.glob(".here.*.tmp"))
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
    assert stages
    assert not (tmp_path / "here").exists()
    few = [*command, "--set", "trace.limit=5"]
    done = subprocess.run(few, cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["here"]
    assert run_folder.load(tmp_path / "here").info.partial is False


def run_with_files_of_at_most(num_bytes: int, folder: Path) -> subprocess.CompletedProcess[str]:
    """`headway run` where a file can't grow beyond a size: what it meets is as on a full disk."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, num_bytes))

    command = [sys.executable, "-m", "sim.cli", "run", "--trace", "trace.csv", "--out", "here"]
    return subprocess.run(
        [*command, "--no-plots"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=limit,
    )


def test_a_full_disk_is_told_in_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    """Met while the run goes on, and at its end."""
    rows = "".join(f"{row * 0.5},50,20\n" for row in range(8000))  # 160,000 steps: two row groups
    (tmp_path / "trace.csv").write_text(f"arrival_s,num_prompt_tokens,num_output_tokens\n{rows}")
    assert run_with_files_of_at_most(1 << 30, tmp_path).returncode == 0
    num_bytes = (tmp_path / "here" / "steps.parquet").stat().st_size
    shutil.rmtree(tmp_path / "here")
    for too_few in (num_bytes // 10, num_bytes - 1000):
        done = run_with_files_of_at_most(too_few, tmp_path)
        said = [line for line in done.stderr.splitlines() if "read as headway-csv" not in line]
        assert said == ["headway: here: the run folder can't be written (File too large)"]
        assert done.returncode == 2
        assert [path.name for path in tmp_path.iterdir()] == ["trace.csv"]
