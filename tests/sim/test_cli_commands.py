"""The other commands: check, conformance replay, --version, and how quickly help comes."""

import gzip
import json
import os
import resource
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pandas as pd
import pytest

from sim.cli.app import run_app

CHECKOUT = Path(__file__).resolve().parents[2]
HELP_CPU_S = 0.5
HEAVY = ("pandas", "matplotlib", "pyarrow", "scipy", "numpy", "simpy", "pydantic.main", "rich")

STUDY = """
name: small
trace: {sample: true, limit: 30}
model: llama-3.1-8b
hardware: h100-sxm-80gb
"""


def case(name: str, steps: list[dict[str, object]] | None) -> dict[str, object]:
    """One request of 20 tokens with 2 to generate, alone on a replica."""
    request = {
        "id": "a",
        "arrival_step": 0,
        "arrival_time": 0.0,
        "priority": 0,
        "prompt": [["s", 20]],
        "max_tokens": 2,
    }
    body: dict[str, object] = {"name": name, "config": {}, "requests": [request]}
    return body if steps is None else {**body, "steps": steps}


@pytest.fixture
def emitted(tmp_path: Path) -> list[dict[str, object]]:
    """Steps of that case as our scheduler makes them."""
    source, target = tmp_path / "in.jsonl", tmp_path / "steps.jsonl"
    source.write_text(json.dumps(case("x", None)))
    assert run_app(["conformance", "replay", str(source), "--emit", str(target)]) == 0
    steps: list[dict[str, object]] = json.loads(target.read_text())["steps"]
    return steps


def test_replay_counts_identical_cases(
    tmp_path: Path, emitted: list[dict[str, object]], capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "cases.jsonl.gz"
    with gzip.open(file, "wt") as lines:
        for name in ("basic-0-0", "basic-0-1"):
            lines.write(json.dumps(case(name, emitted)) + "\n")
    capsys.readouterr()
    assert run_app(["conformance", "replay", str(file)]) == 0
    assert capsys.readouterr().out == "2 of 2 identical\n"


def test_replay_names_the_first_differing_step_and_field(
    tmp_path: Path, emitted: list[dict[str, object]], capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = [emitted[0], {**emitted[1], "free_blocks": 7}, *emitted[2:]]
    file = tmp_path / "cases.jsonl"
    file.write_text(
        "\n".join(
            json.dumps(c)
            for c in (case("basic-0-0", emitted), case("ties-0-0", wrong), case("ties-0-1", None))
        )
    )
    capsys.readouterr()
    assert run_app(["conformance", "replay", str(file)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"ties-0-0: step {emitted[1]['step']}: free_blocks: given 7, ours ")
    assert lines[1:] == [
        "ties: 0 of 1 identical",
        "1 of 2 identical (1 case carries no steps to compare with)",
    ]


def test_the_emitted_first_step_is_the_whole_prompt(emitted: list[dict[str, object]]) -> None:
    """20 tokens fit the default budget of 2048; 999 usable blocks less 2 are free after it."""
    assert emitted[0]["scheduled"] == {"a": 20}
    assert emitted[0]["free_blocks"] == 997


def test_the_recorded_cases_are_identical(
    shared_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = shared_dir / "conformance" / "cases.jsonl.gz"
    assert run_app(["conformance", "replay", str(file)]) == 0
    assert capsys.readouterr().out == "485 of 485 identical\n"


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    study = tmp_path / "small.yaml"
    study.write_text(STUDY)
    folder = tmp_path / "run"
    assert run_app(["run", str(study), "--no-plots", "--out", str(folder)]) == 0
    return folder


def test_check_passes_a_sound_run(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert run_app(["check", str(run_folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(line.startswith("ok ") for line in lines[:-1])
    assert lines[-1] == f"{len(lines) - 1} of {len(lines) - 1} checks hold"


def test_check_fails_a_run_whose_rows_were_changed(
    run_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = run_folder / "requests.parquet"
    rows = pd.read_parquet(file)
    rows.loc[3, "last_token_s"] += 1.0
    rows.to_parquet(file)
    capsys.readouterr()
    assert run_app(["check", str(run_folder)]) == 1
    assert "FAIL" in capsys.readouterr().out


def test_check_of_a_folder_that_is_not_whole_is_bad_input(
    run_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run_folder / "steps.parquet").unlink()
    capsys.readouterr()
    assert run_app(["check", str(run_folder)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "steps.parquet" in said.err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_app(["--version"]) == 0
    assert capsys.readouterr().out == f"headway {version('headway')}\n"


def test_without_a_command_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["conformance"]):
        assert run_app(arguments) == 2
        assert capsys.readouterr().err.startswith("Usage: headway")


def test_help_is_quick_and_imports_nothing_heavy() -> None:
    """CPU seconds of the process, so another load on the machine does not matter."""
    code = (
        "import sys; from sim.cli.app import run_app; run_app(['--help']);"
        f"print([m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr)"
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert "run" in done.stdout
    assert done.stderr.strip() == "[]"
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert cpu_s < HELP_CPU_S


def test_an_interrupted_command_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("sim.cli.check_command.check_folder", interrupt)
    assert run_app(["check", "a-run"]) == 130
    assert capsys.readouterr().err.startswith("headway: interrupted")
