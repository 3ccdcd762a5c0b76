"""The prepared GPU script, on the CPU."""

import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs PyTorch: pip install -e '.[bench]'")

CHECKOUT = Path(__file__).resolve().parents[3]
SCRIPT = CHECKOUT / "scripts/calibrate_gpu.py"
HEAVY = "pandas pyarrow scipy matplotlib simpy pydantic typer yaml rich"


@pytest.mark.usefixtures("budget_in_cpu_time")
def test_its_cpu_path_brings_back_a_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
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
    main = runpy.run_path(str(SCRIPT), run_name="script")["main"]
    assert main() == 0, capsys.readouterr().err
    profile = json.loads(Path("out/config.json-eager.json").read_text())
    assert profile["fit"]["held_out"]["all"]["num_points"] > 0
    assert Path("out/config.json-eager.samples.jsonl").is_file()


def test_it_needs_no_more_than_torch_and_numpy() -> None:
    code = (
        "import sys, calibration.bench.bench_run, sim.rng;"
        f"print(*[name for name in '{HEAVY}'.split() if name in sys.modules])"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=CHECKOUT, check=True
    )
    assert run.stdout.strip() == ""
