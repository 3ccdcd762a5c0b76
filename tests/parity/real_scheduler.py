"""Runs random studies on our scheduler and on vLLM's own, and compares what they write.

    PYTHON_WITH_VLLM tests/parity/real_scheduler.py COUNT SEED

That Python also needs Headway and its dependencies. Prints a line for each study that differs, then
the count of identical ones; exits 1 if one differs.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from sim.config import resolve_study
from sim.result import save
from sim.rng import Streams
from sim.simulation import simulate

FILES = ("requests.parquet", "steps.parquet", "gaps.parquet")


def draw_study(number: int, seed: int) -> dict[str, Any]:
    rng = Streams(seed).rng(f"study/{number}")

    def pick(*values: Any) -> Any:
        return values[int(rng.integers(len(values)))]

    highest = pick(200, 600, 1500)
    max_model_len = 2 * highest
    block_size = pick(8, 16, 32)
    least = max_model_len // block_size + 2
    return {
        "name": f"study-{number}",
        "seed": number,
        "model": "llama-3.1-8b",
        "hardware": "h100-sxm-80gb",
        "replicas": pick(1, 1, 2, 3),
        "router": pick("round-robin", "random", "least-outstanding-tokens"),
        "trace": {
            "generator": {
                "num_requests": pick(40, 100, 200),
                "rate_per_s": pick(5.0, 30.0, 200.0),
                "cv": pick(1.0, 3.0),
                "prompt_tokens": {"median": highest / 4, "sigma": 0.8, "highest": highest},
                "output_tokens": {"median": highest / 8, "sigma": 0.7, "highest": highest},
                "system_prompts": pick(
                    None, {"share": 0.7, "num_tokens": [64, 100, 150], "zipf_exponent": 1.0}
                ),
                "priority_weights": pick(None, {0: 1, 1: 3, 2: 1}),
            }
        },
        "engine": {
            "max_model_len": max_model_len,
            "max_num_seqs": pick(4, 16, 64),
            "max_num_batched_tokens": pick(64, 256, 1024, max_model_len),
            "scheduling_policy": pick("fcfs", "priority"),
            "enable_prefix_caching": pick(True, False),
            "long_prefill_token_threshold": pick(0, 0, 40),
            "scheduler_reserve_full_isl": pick(True, False),
            "watermark": pick(0.0, 0.0, 0.05),
            "block_size": block_size,
            "num_gpu_blocks": least + pick(0, least, 4 * least),
            "host_overhead_s": pick(0.0, 0.002),
            "leap": False,  # that leaping is stepping is shown elsewhere
            "async_scheduling": pick(True, False),
        },
        "cost_model": pick(
            {"kind": "roofline"},
            {"kind": "constant", "step_s": 0.02},
            {"kind": "linear", "base_s": 0.005, "per_token_s": 2e-5, "per_context_token_s": 1e-7},
        ),
        "load": pick(
            {"mode": "open"}, {"mode": "open"}, {"mode": "closed", "concurrency": 8, "rounds": 4}
        ),
        "until_s": pick(None, None, None, 5.0),
    }


def written(study: dict[str, Any], scheduler: str, folder: Path) -> dict[str, bytes]:
    engine = {**study["engine"], "scheduler": scheduler}
    save(simulate(resolve_study({**study, "engine": engine}, study["name"])), folder, plots=False)
    return {name: (folder / name).read_bytes() for name in FILES}


def differing_files(number: int, seed: int, folder: Path) -> list[str]:
    study = draw_study(number, seed)
    made = [
        written(study, scheduler, folder / f"{number}-{scheduler}")
        for scheduler in ("headway", "vllm")
    ]
    return [name for name in FILES if made[0][name] != made[1][name]]


def main(count: int, seed: int) -> int:
    num_identical = 0
    with tempfile.TemporaryDirectory() as folder:
        for number in range(count):
            differing = differing_files(number, seed, Path(folder))
            num_identical += not differing
            if differing:
                print(f"study {number}: {', '.join(differing)} differ")
    print(f"{num_identical} of {count} identical")
    return 0 if num_identical == count else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
