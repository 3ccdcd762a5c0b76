"""The run folder: what is saved comes back, the same run gives the same bytes, whole or absent."""

import contextlib
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

from sim import result as result_module
from sim.checks import check_dir
from sim.cli.app import run_app
from sim.errors import ResultError
from sim.metrics import summarise
from sim.parquet import read_rows, write_rows
from sim.result import being_written, check_target, load, save, staged_folder
from sim.run_result import RunResult
from tests.sim.hand_run import hand_run
from tests.sim.toy_run import toy_requests, toy_run

ROOT = Path(__file__).resolve().parents[2]
FILES = ["config.yaml", "gaps.parquet", "requests.parquet", "steps.parquet", "summary.json"]


def assert_same(left: RunResult, right: RunResult) -> None:
    assert left.config == right.config
    assert left.info == right.info
    for name in ("requests", "steps", "gaps"):
        a, b = getattr(left, name), getattr(right, name)
        assert list(a) == list(b)
        for column in a:
            np.testing.assert_array_equal(a[column], b[column])
            assert a[column].dtype.kind == b[column].dtype.kind


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("num_requests", [0, 1, 50])
def test_what_is_saved_comes_back(tmp_path, num_requests):
    run = toy_run(toy_requests(num_requests, 20.0, seed=1), num_replicas=2, until_s=2.0)
    folder = save(run, tmp_path / "run", plots=False)
    assert names(folder) == FILES
    assert names(tmp_path) == ["run"]
    assert_same(load(folder), run)
    assert summarise(load(folder)) == summarise(run)


def test_the_request_file_has_every_metric_of_a_request(tmp_path):
    table = pq.read_table(save(hand_run(), tmp_path / "run", plots=False) / "requests.parquet")
    got = {name: table.column(name).to_pylist() for name in ("ttft_s", "tpot_s", "e2e_s")}
    assert got["ttft_s"][:3] == [1.0, 2.0, 1.0]
    assert got["tpot_s"][0] == 2.0
    assert got["e2e_s"][:2] == [5.0, 2.0]
    assert all(np.isnan(got["e2e_s"][2:]))  # aborted, rejected: never happened, not zero


def digest(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    hashes = {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}
    assert len(hashes) == len(FILES) + 4
    return hashes


SAVE_IN_ANOTHER_PROCESS = """
import sys
from sim.result import save
from tests.sim.toy_run import toy_requests, toy_run
save(toy_run(toy_requests(60, 20.0, seed=2), num_replicas=2, num_gpu_blocks=60), sys.argv[1])
"""


def test_the_same_run_gives_the_same_bytes_under_another_hash_seed_and_settings(tmp_path):
    run = toy_run(toy_requests(60, 20.0, seed=2), num_replicas=2, num_gpu_blocks=60)
    here = digest(save(run, tmp_path / "here"))
    (tmp_path / "matplotlibrc").write_text("font.size: 30\nsavefig.dpi: 40\n")
    environment = os.environ | {
        "PYTHONHASHSEED": "12345",
        "PYTHONPATH": str(ROOT),
        "MATPLOTLIBRC": str(tmp_path / "matplotlibrc"),
        "TZ": "Asia/Tokyo",
    }
    command = [sys.executable, "-c", SAVE_IN_ANOTHER_PROCESS, str(tmp_path / "there")]
    subprocess.run(command, env=environment, check=True, cwd=tmp_path)
    assert digest(tmp_path / "there") == here


def test_an_existing_folder_is_not_overwritten_unless_asked(tmp_path):
    folder = save(hand_run(), tmp_path / "run", plots=False)
    before = (folder / "summary.json").read_bytes()
    with pytest.raises(ResultError, match="exists already"):
        save(toy_run([]), folder, plots=False)
    assert (folder / "summary.json").read_bytes() == before
    save(toy_run([]), folder, plots=False, overwrite=True)
    assert load(folder).requests["request_id"].size == 0
    assert names(tmp_path) == ["run"]


def test_a_run_that_came_there_meanwhile_is_not_overwritten_unless_asked(tmp_path):
    """Of two runs at the same time to the same place, the slower one leaves the quicker one's."""
    for overwrite in (False, True):
        place = tmp_path / f"run{overwrite}"
        with contextlib.suppress(ResultError), staged_folder(place, overwrite) as stage:
            (stage / "summary.json").write_text("of the slower run")
            place.mkdir()
            (place / "summary.json").write_text("of the quicker run")
            (place / "config.yaml").write_text("")
        whose = "slower" if overwrite else "quicker"
        assert (place / "summary.json").read_text() == f"of the {whose} run"
    assert names(tmp_path) == ["runFalse", "runTrue"]


def test_a_place_that_another_process_writes_is_named_before_the_run(tmp_path):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        (tmp_path / f".run.{other.pid}.tmp").mkdir()
        assert being_written(tmp_path / "run") == [other.pid]
        with pytest.raises(ResultError, match=f"process {other.pid} is writing it now"):
            check_target(tmp_path / "run")
        check_target(tmp_path / "run", overwrite=True)
        other.communicate(b"\n")
    check_target(tmp_path / "run")


def test_a_link_to_a_folder_stays_one(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    save(hand_run(), tmp_path / "link", plots=False)
    save(hand_run(), tmp_path / "link", plots=False, overwrite=True)
    assert names(tmp_path) == ["link", "real"]
    assert (tmp_path / "link").is_symlink()
    assert names(tmp_path / "real") == FILES


def test_the_folder_one_is_in_is_not_replaced(tmp_path, monkeypatch):
    (tmp_path / "run" / "below").mkdir(parents=True)
    for here, target in (("run/below", "."), ("run/below", tmp_path / "run" / "below")):
        monkeypatch.chdir(tmp_path / here)
        with pytest.raises(ResultError, match="the folder you are in"):
            save(hand_run(), target, plots=False)


def test_a_replaced_folder_that_a_killed_run_left_is_removed_once_another_is_there(tmp_path):
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait()
    old = tmp_path / f".run.{gone.pid}.old"
    old.mkdir()
    save(hand_run(), tmp_path / "run", plots=False)
    assert old.exists()  # the kill may have come before another took its place
    save(hand_run(), tmp_path / "run", plots=False, overwrite=True)
    assert names(tmp_path) == ["run"]


def test_a_folder_that_is_no_run_folder_is_never_overwritten(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(ResultError, match="is not a run folder"):
        save(hand_run(), tmp_path, plots=False, overwrite=True)
    assert (tmp_path / "thesis.tex").exists()


def test_an_empty_folder_may_be_filled(tmp_path):
    (tmp_path / "run").mkdir()
    save(hand_run(), tmp_path / "run", plots=False)
    assert names(tmp_path / "run") == FILES


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("broken", ["write_rows", "write_json"])
def test_a_write_that_fails_in_the_middle_leaves_all_as_it_was(
    tmp_path, monkeypatch, broken, overwrite
):
    if overwrite:
        save(hand_run(), tmp_path / "run", plots=False)
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}

    def disk_is_full(path, *_):
        path.write_text("half a file")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(result_module, broken, disk_is_full)
    with pytest.raises(ResultError, match="No space left on device"):
        save(toy_run([]), tmp_path / "run", plots=False, overwrite=overwrite)
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before
    assert names(tmp_path) == (["run"] if overwrite else [])


def test_ctrl_c_while_writing_leaves_no_folder(tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(result_module, "write_rows", interrupt)
    with pytest.raises(KeyboardInterrupt):
        save(hand_run(), tmp_path / "run", plots=False)
    assert names(tmp_path) == []


def test_an_unwritable_place_is_named_before_the_run(tmp_path, monkeypatch):
    # Root may write everywhere, so the answer of the system is put in its place.
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(ResultError, match="not a writable folder"):
        check_target(tmp_path / "run")


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "run").write_text("")
    with pytest.raises(ResultError, match="is a file"):
        check_target(tmp_path / "run")
    with pytest.raises(ResultError, match="not a writable folder"):
        check_target(tmp_path / "run" / "below")


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(tmp_path, name):
    folder = save(hand_run(), tmp_path / "run", plots=False)
    (folder / name).unlink()
    with pytest.raises(ResultError, match=rf"{name}: no such file; the run folder is not complete"):
        load(folder)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("keep", [0.0, 0.5])
def test_a_broken_file_is_named(tmp_path, name, keep):
    folder = save(hand_run(), tmp_path / "run", plots=False)
    whole = (folder / name).read_bytes()
    half = whole[: int(len(whole) * keep)] if name != "config.yaml" else b"a: [1"
    (folder / name).write_bytes(half)
    with pytest.raises(ResultError, match=name):
        load(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema_version": 99}, "schema_version is 99, expected 2"),
        ({"run": {}}, "section 'run' is not whole"),
    ],
)
def test_a_summary_of_another_kind_is_named(tmp_path, change, message):
    folder = save(hand_run(), tmp_path / "run", plots=False)
    path = folder / "summary.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ResultError, match=message):
        load(folder)


def test_the_config_is_yaml_in_its_own_order(tmp_path):
    folder = save(hand_run(), tmp_path / "run", plots=False)
    assert yaml.safe_load((folder / "config.yaml").read_text()) == {"study": {"replicas": 2}}


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".parquet")])
def test_a_column_that_is_missing_or_of_another_kind_is_named(tmp_path, name):
    folder = save(hand_run(), tmp_path / "run", plots=False)
    whole = read_rows(folder / name)
    write_rows(folder / name, {key: whole[key] for key in whole if key != "replica"})
    with pytest.raises(ResultError, match=rf"{name}: the column 'replica' is missing"):
        load(folder)
    write_rows(folder / name, whole | {"replica": whole["replica"].astype(str)})
    with pytest.raises(ResultError, match=r"'replica' holds .*; it must be whole numbers"):
        load(folder)


def test_rows_that_contradict_each_other_fail_their_check(tmp_path):
    folder = save(hand_run(), tmp_path / "run", plots=False)
    rows = read_rows(folder / "steps.parquet")
    write_rows(folder / "steps.parquet", rows | {"step": rows["step"] + 7})
    assert not all(outcome.ok for outcome in check_dir(folder))
    for name in ("steps.parquet", "requests.parquet"):
        none = {name: column[:0] for name, column in read_rows(folder / name).items()}
        write_rows(folder / name, none)
        assert not all(outcome.ok for outcome in check_dir(folder))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("cost", None, "run.cost"),
        ("slo", {"ttft_s": "x", "tpot_s": None, "e2e_s": None}, "run.slo.ttft_s: 'x'"),
        ("partial", "no", "run.partial: 'no'"),
    ],
)
def test_a_wrong_value_in_the_summary_is_named(tmp_path, key, value, message):
    folder = save(hand_run(), tmp_path / "run", plots=False)
    path = folder / "summary.json"
    summary = json.loads(path.read_text())
    summary["run"][key] = value
    path.write_text(json.dumps(summary))
    with pytest.raises(ResultError, match=message):
        load(folder)


@pytest.mark.parametrize("command", ["check", "report", "timeline"])
@pytest.mark.parametrize("table", ["requests", "steps", "gaps"])
@pytest.mark.parametrize("replica", [7, -5])
def test_rows_of_a_replica_that_there_is_not_are_refused(tmp_path, capsys, command, table, replica):
    run = hand_run()
    folder = save(run, tmp_path / "run", plots=False)
    path = folder / f"{table}.parquet"
    columns = dict(read_rows(path))
    assert len(columns["replica"])
    columns["replica"] = columns["replica"].copy()
    columns["replica"][-1] = replica
    write_rows(path, columns)
    assert run_app([command, str(folder)]) == 2
    said = capsys.readouterr().err
    assert f"{path}: the column 'replica' holds {replica}, " in said
    assert "by summary.json there are replicas 0 to 1" in said
