"""Small studies for tests: a chat-like one, and one that is an M/D/1 queue."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

CHECKOUT = Path(__file__).resolve().parents[2]
HEADWAY = [sys.executable, "-m", "sim.cli"]


def chat_study(num_requests: int = 40, **changes: Any) -> dict[str, Any]:
    return {
        "name": "small",
        "trace": {
            "generator": {
                "num_requests": num_requests,
                "rate_per_s": 20.0,
                "prompt_tokens": {"median": 200.0, "sigma": 0.5},
                "output_tokens": {"median": 10.0, "sigma": 0.5},
            }
        },
        "model": "llama-3.1-8b",
        "hardware": "h100-sxm-80gb",
        "cost_model": {"kind": "roofline"},
        **changes,
    }


def queue_study(num_requests: int, rate_per_s: float, **changes: Any) -> dict[str, Any]:
    """One request of one token at a time, one second each: M/D/1 with Poisson arrivals."""
    one = {"median": 1.0}
    return {
        "name": "queue",
        "trace": {
            "generator": {
                "num_requests": num_requests,
                "rate_per_s": 1.0,
                "prompt_tokens": one,
                "output_tokens": one,
            },
            "poisson_rate_per_s": rate_per_s,
        },
        "model": "llama-3.1-8b",
        "hardware": "h100-sxm-80gb",
        "router": "random",
        "engine": {"max_num_seqs": 1, "enable_prefix_caching": False},
        "cost_model": {"kind": "constant", "step_s": 1.0},
        **changes,
    }


def write_study(folder: Path, values: dict[str, Any], name: str = "study.yaml") -> Path:
    path = folder / name
    path.write_text(yaml.safe_dump(values, sort_keys=False))
    return path


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(CHECKOUT), "COLUMNS": "200"}


def headway(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*HEADWAY, *arguments],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
        check=False,
    )
