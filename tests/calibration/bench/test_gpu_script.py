"""The prepared GPU script, on the CPU."""

import json
import runpy
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install -e '.[bench]'")

from calibration.bench.points import Point  # noqa: E402
from calibration.bench.samples import Sample  # noqa: E402
from calibration.bench.sections import Sections  # noqa: E402

CHECKOUT = Path(__file__).resolve().parents[3]
SCRIPT = CHECKOUT / "scripts/calibrate_gpu.py"
EXECUTIONS = ("cuda-graph", "eager")
HEAVY = "pandas pyarrow scipy matplotlib simpy pydantic typer yaml rich"


@pytest.fixture
def run_on_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, budget_in_cpu_time: None
) -> Callable[[], int]:
    """Runs the script on a tiny model, in this process."""
    config = {
        "model_type": "llama",
        "num_hidden_layers": 1,
        "hidden_size": 32,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 48,
        "vocab_size": 97,
        "max_position_embeddings": 256,
        "torch_dtype": "float32",
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    limits = "--max-num-batched-tokens 16 --max-num-seqs 4 --max-model-len 64 --minutes 0.05"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "sys.argv", ["x", "out", "--device", "cpu", "--model", "config.json", *limits.split()]
    )
    main: Callable[[], int] = runpy.run_path(str(SCRIPT), run_name="script")["main"]
    return main


def test_its_cpu_path_brings_back_a_profile(
    run_on_cpu: Callable[[], int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_on_cpu() == 0, capsys.readouterr().err
    profile = json.loads(Path("out/config.json-eager.json").read_text())
    assert profile["fit"]["held_out"]["all"]["num_points"] > 0
    assert Path("out/config.json-eager.samples.jsonl").is_file()


def test_a_device_that_fails_leaves_the_profile_of_what_was_measured(
    run_on_cpu: Callable[[], int],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    measure, left = Sections.measure, [250]  # after the first pass over all points

    def failing(sections: Sections, point: Point) -> Sample:
        left[0] -= 1
        if not left[0]:
            raise RuntimeError("CUDA error: unspecified launch failure\nFor debugging consider")
        return measure(sections, point)

    monkeypatch.setattr(Sections, "measure", failing)
    assert run_on_cpu() == 1
    assert "eager: " in (error := capsys.readouterr().err)
    assert "launch failure; samples so far are kept" in error and "debugging" not in error
    assert Path("out/config.json-eager.json").is_file()


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT), run_name="script")


def test_all_parts_end_within_the_limit(script: dict[str, Any]) -> None:
    """With the longest that each may take: its part, the time to write, the time to end."""
    part_s, writing_s, ending_s = (script[n] for n in ("part_s", "WRITING_S", "ENDING_S"))
    limit_s = spent_s = 7.5 * 60
    for num_left in range(len(EXECUTIONS), 0, -1):
        own_s = part_s(spent_s, num_left)
        assert own_s > 3 * 60  # enough for the minutes that each is given
        spent_s -= own_s + writing_s
    assert spent_s >= -1.0
    assert limit_s - spent_s + ending_s < 8 * 60


def test_a_part_that_does_not_end_is_asked_to_and_its_code_is_told(
    script: dict[str, Any], tmp_path: Path
) -> None:
    done = tmp_path / "done"
    code = (
        "import signal, sys, time, pathlib\n"
        f"def end(*_): pathlib.Path({str(done)!r}).touch(); sys.exit(3)\n"
        "signal.signal(signal.SIGTERM, end); print('ready'); time.sleep(60)"
    )
    begin_s = time.monotonic()
    assert script["run_for"]([sys.executable, "-c", code], 5.0) == 3
    assert done.is_file() and time.monotonic() - begin_s < 30
    assert script["run_for"]([sys.executable, "-c", "raise SystemExit(4)"], 60.0) == 4
    assert script["run_for"]([sys.executable, "-c", ""], 60.0) == 0


@pytest.mark.skipif(torch.cuda.is_available(), reason="it would run")
def test_without_a_gpu_every_execution_says_so(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), str(tmp_path / "out"), "--minutes", "1"]
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert run.returncode == 1 and run.stdout == ""
    lines = run.stderr.splitlines()
    assert [line.partition(":")[0] for line in lines] == list(EXECUTIONS)
    assert all("sees 0 CUDA devices here" in line for line in lines)


def test_it_needs_no_more_than_torch_and_numpy() -> None:
    code = (
        "import sys, calibration.bench.bench_run, sim.rng;"
        f"print(*[name for name in '{HEAVY}'.split() if name in sys.modules])"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=CHECKOUT, check=True
    )
    assert run.stdout.strip() == ""
