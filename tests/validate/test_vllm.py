"""`headway validate vllm`: its errors, and the real engine where there is one.

Set HEADWAY_VLLM_PYTHON to the path of a Python that has vLLM for CPUs to run the engine.
"""

import os
import sys
from pathlib import Path

import pytest

from sim.cli.app import run_app
from sim.cli.vllm_command import PYTHON_VARIABLE

TRACE = "arrived_at,num_prefill_tokens,num_decode_tokens\n0,64,16\n0.2,640,8\n0.9,160,32\n1,96,40\n"


@pytest.fixture
def trace(tmp_path: Path) -> str:
    file = tmp_path / "four.csv"
    file.write_text(TRACE)
    return str(file)


@pytest.fixture
def vllm_python() -> str:
    path = os.environ.get(PYTHON_VARIABLE)
    if path is None:
        pytest.skip(f"{PYTHON_VARIABLE} does not name a Python with vLLM for CPUs")
    return path


def test_without_a_python_it_says_how_to_name_one(
    trace: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(PYTHON_VARIABLE, raising=False)
    assert run_app(["validate", "vllm", "--trace", trace]) == 2
    assert f"give --python, or set {PYTHON_VARIABLE}" in capsys.readouterr().err


def test_a_python_that_is_none_is_named(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_app(["validate", "vllm", "--trace", trace, "--python", "/no/python"]) == 2
    assert "/no/python: no such Python" in capsys.readouterr().err


def test_a_python_without_vllm_is_named(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_app(["validate", "vllm", "--trace", trace, "--python", sys.executable]) == 2
    assert "No module named 'vllm'" in capsys.readouterr().err


def test_a_missing_trace_is_named_before_an_engine_is_built(
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ["validate", "vllm", "--trace", "none.csv", "--python", sys.executable]
    assert run_app(command) == 2
    assert "none.csv" in capsys.readouterr().err


def test_a_real_engine_serves_what_is_simulated(
    trace: str, vllm_python: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    options = ["--python", vllm_python, "--minutes", "0.4", "--repeats", "1", "--out", str(out)]
    assert run_app(["validate", "vllm", "--trace", trace, *options]) == 0
    said = capsys.readouterr().out
    assert "4 requests, prompts of 30 and outputs of 3 tokens in the mean" in said
    assert {"profile.json", "four-steps.png", "four-cdf.png"} <= {f.name for f in out.iterdir()}
    errors = [line for line in said.splitlines() if line.startswith("E2E mean")]
    assert abs(float(errors[0].split()[6].rstrip("%"))) < 50  # another machine, another time
