"""Calibrate a GPU in one go: eager and CUDA-graph profiles, held-out steps, a report.

    python scripts/calibrate_gpu.py OUT [--model llama-3.1-8b] [--minutes 3]

Needs PyTorch and numpy, nothing else of Headway's dependencies, so that it runs on a bare machine
from a copy of the checkout. Takes twice the minutes given plus the start: under 8 by default.
Ctrl-C or a kill keeps the samples; --resume goes on with them. With --device cpu it runs, eager
only, where there is no GPU.
"""

import argparse
import json
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(CHECKOUT))

from calibration.bench.bench_run import BenchOptions, Calibration, run_calibration  # noqa: E402
from calibration.bench.reference_model import load_bench_model  # noqa: E402
from calibration.errors import CalibrationError  # noqa: E402
from calibration.profile_writing import write_profile  # noqa: E402
from sim.rng import Streams  # noqa: E402


def main() -> int:
    """Run every execution; one that fails does not keep the others from being saved."""
    arguments = _arguments()
    arguments.out.mkdir(parents=True, exist_ok=True)
    executions = ("eager",) if arguments.device == "cpu" else ("cuda-graph", "eager")
    failed = 0
    for execution in executions:
        try:
            _calibrate(arguments, execution)
        except CalibrationError as error:
            print(f"{execution}: {error}", file=sys.stderr)
            failed = 1
    return failed


def _calibrate(arguments: argparse.Namespace, execution: str) -> None:
    options = BenchOptions(
        model=load_bench_model(arguments.model),
        device=arguments.device,
        execution=execution,
        budget_s=arguments.minutes * 60,
        max_num_batched_tokens=arguments.max_num_batched_tokens,
        max_num_seqs=arguments.max_num_seqs,
        max_model_len=arguments.max_model_len,
        block_size=arguments.block_size,
        git_commit=_git_commit(),
        date=datetime.now(UTC).date().isoformat(),
    )
    started_s = time.perf_counter()
    stem = arguments.out / f"{arguments.model.replace('/', '-')}-{execution}"
    samples = stem.with_name(stem.name + ".samples.jsonl")
    calibration = run_calibration(
        options,
        rng=Streams(0).rng,
        samples_file=samples,
        resume=arguments.resume and samples.is_file(),
    )
    profile = stem.with_name(stem.name + ".json")
    write_profile(calibration.profile, profile)
    _report(calibration, profile, time.perf_counter() - started_s)


def _report(calibration: Calibration, file: Path, elapsed_s: float) -> None:
    measured, fit = calibration.profile.provenance, calibration.profile.fit
    print(f"{file}: {measured.model} on {measured.device}, {measured.execution}, {elapsed_s:.0f} s")
    print(f"kernels: {measured.kernel_backend}; torch {measured.torch}; {measured.notes}")
    if measured.execution in ("eager", "cuda-graph") and "varlen" not in measured.kernel_backend:
        print("this GPU's paged kernel refuses these blocks; try --block-size 256", file=sys.stderr)
    for part in ("measuring", "checks", "decode_skew", "decode_skew_beside_chunks", "held_out"):
        print(f"{part}: {json.dumps(fit.get(part), indent=1)}")
    for step in calibration.held_out:
        print(
            f"{step.region:36}{step.measured_s * 1e3:9.3f} ms{step.predicted_s * 1e3:9.3f} ms"
            f"{step.error:+8.1%}"
        )


def _git_commit() -> str:
    command = ["git", "-C", str(CHECKOUT), "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("out", type=Path, help="folder for profiles, samples")
    parser.add_argument("--model", default="llama-3.1-8b")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--minutes", type=float, default=3.0, help="of each execution")
    parser.add_argument("--max-num-batched-tokens", type=int, default=8192)
    parser.add_argument("--max-num-seqs", type=int, default=256)
    parser.add_argument("--max-model-len", type=int, default=8192)
    parser.add_argument("--block-size", type=int, default=16)
    parser.add_argument("--resume", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
