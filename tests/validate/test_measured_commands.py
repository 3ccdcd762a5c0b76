"""`headway calibrate` and `headway validate silicon` as a user runs them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from calibration import load_profile
from sim.cli.app import run_app
from tests.calibration.kernel_files import write_system


def run(*arguments: object) -> int:
    return run_app([str(argument) for argument in arguments])


def test_calibrate_writes_a_profile_that_can_be_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out = write_system(tmp_path), tmp_path / "p.json"
    # Times of the made tables are near those of an H100, so the check of units passes.
    code = run(
        "calibrate", "--from", "aic", "--system", "h100", "--model", "llama-3.1-8b",
        "--data", data, "--out", out,
    )  # fmt: skip
    said = capsys.readouterr()
    assert code == 0, said.err
    assert "dense: " in said.out
    assert "points left out in turn" in said.out
    assert load_profile(out).provenance.details["model"] == "llama-3.1-8b"
    assert json.loads(out.read_text())["format"] == "headway-profile"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--from", "aix"], "--from is 'aix'; it must be one of aic, llmservingsim"),
        (["--from", "aic"], "--system and --model are needed"),
        (
            ["--from", "llmservingsim", "--system", "RTXPRO6000", "--model", "llama-3.1-8b"],
            "--data is needed",
        ),
        (
            ["--from", "aic", "--system", "h1000", "--model", "llama-3.1-8b", "--data", "."],
            "did you mean 'h100-sxm-80gb'",
        ),
        (
            ["--from", "aic", "--system", "h100", "--model", "llama-3.1-8b", "--data", "none"],
            "none: has no folder h100_sxm",
        ),
    ],
)
def test_bad_orders_are_one_sentence(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("calibrate", *arguments) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.startswith("headway: ")


def test_validate_prints_tables_and_draws(
    shared_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    truth = shared_dir / "data" / "truth" / "silicon"
    code = run(
        "validate", "silicon", "--data", truth, "--study", "qwen3-32b-h100", "--every", 20,
        "--out", tmp_path,
    )  # fmt: skip
    said = capsys.readouterr().out
    assert code == 0
    assert "qwen3-32b-h100: 3 rows" in said
    assert "MAPE" in said
    assert (tmp_path / "qwen3-32b-h100.png").stat().st_size > 10_000
    assert len((tmp_path / "qwen3-32b-h100.csv").read_text().splitlines()) == 4


def test_validate_without_measurements_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("validate", "silicon", "--data", tmp_path) == 2
    assert "has no measurements of qwen3-32b-h100" in capsys.readouterr().err
    assert run("validate", "silicon", "--data", tmp_path / "none") == 2
    assert "no such folder" in capsys.readouterr().err


def test_the_executor_says_what_to_install_where_torch_is_not() -> None:
    """In a process of its own: here other tests have imported what needs it."""
    code = (
        "import sys; sys.modules['torch'] = None; from sim.cli.app import run_app;"
        "sys.exit(run_app(['validate', 'executor']))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 2
    assert "pip install 'headway[bench]'" in done.stderr and "Traceback" not in done.stderr
