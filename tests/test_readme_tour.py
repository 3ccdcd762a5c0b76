"""The README's tour, typed in as it stands: every command does what it says, on a user's trace."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from sim.cli.app import run_app
from sim.config import load_study
from tests.validate.test_silicon import GOOD as MEASURED_ROW

CHECKOUT = Path(__file__).resolve().parents[1]
README = (CHECKOUT / "README.md").read_text(encoding="utf-8")
NUM_REQUESTS = 1500  # long prompts, short answers: so few are enough for `capacity`
TRACE = "arrival_s,num_prompt_tokens,num_output_tokens"
BENCH = {  # what `vllm bench serve --save-result --save-detailed` writes
    "date": "20250101",
    "completed": 2,
    "input_lens": [100, 200],
    "output_lens": [3, 2],
    "ttfts": [0.05, 0.04],
    "itls": [[0.02, 0.04], [0.01]],
    "start_times": [1000.0, 1000.5],
    "errors": ["", ""],
}


def tour() -> list[str]:
    """Lines of the last shell block below "A tour of the commands"; one before makes its files."""
    section = README.split("## A tour of the commands")[1].split("\n## ")[0]
    *_, block = re.findall(r"^```sh\n(.*?)^```", section, re.M | re.S)
    return str(block).splitlines()


def example(first_line: str) -> str:
    """The block of the README that begins so."""
    (rest,) = re.findall(rf"^```[a-z]*\n({re.escape(first_line)}\n.*?)^```", README, re.M | re.S)
    return str(rest)


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that the tour names."""
    rng = np.random.Generator(np.random.PCG64(1))
    arrival_s = np.cumsum(rng.exponential(0.1, NUM_REQUESTS))
    lengths = rng.integers([1000, 2], [6000, 30], (NUM_REQUESTS, 2))
    rows = [f"{at_s:.3f},{p},{o}" for at_s, (p, o) in zip(arrival_s, lengths, strict=True)]
    (tmp_path / "mine.csv").write_text("\n".join([TRACE, *rows]) + "\n")
    (tmp_path / "study.yaml").write_text(example("name: budget-test"))
    (tmp_path / "result-of-vllm-bench.json").write_text(json.dumps(BENCH))
    (tmp_path / "measured").mkdir()
    text = ",".join(MEASURED_ROW) + "\n" + ",".join(MEASURED_ROW.values()) + "\n"
    (tmp_path / "measured" / "rows.csv").write_text(text)
    shutil.copy(CHECKOUT / "tests" / "parity" / "more.jsonl.gz", tmp_path / "cases.jsonl.gz")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_command_of_the_tour_runs(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the README's order, since later lines take what earlier ones leave."""
    for line in tour():
        program, *arguments = shlex.split(line)
        assert program == ".venv/bin/headway"
        needs_tables = arguments[:3] == ["calibrate", "--from", "aic"]
        code = run_app(arguments)
        said = capsys.readouterr()
        if needs_tables and find_spec("aiconfigurator_core") is None:
            assert code == 2
            assert "pip install 'headway[aic]'" in said.err
            continue
        assert code == 0, f"{line}\n{said.err}"
        assert said.out.strip(), line


def test_the_example_of_a_study_is_one(desk: Path) -> None:
    study = load_study(desk / "study.yaml")
    assert (study.name, study.num_replicas, len(study.trace)) == ("budget-test", 2, NUM_REQUESTS)


def test_the_example_of_a_trace_is_one(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (desk / "mine.csv").write_text(example(TRACE))
    assert run_app(["trace", "info", "mine.csv", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["requests"] == 2
