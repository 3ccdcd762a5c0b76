"""Small kernel tables whose times are known in closed form."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

M = (1, 16, 256, 4096)
N = (1024, 8192, 65536)
K = (512, 4096, 16384)
LENGTHS = (1, 128, 1024, 4096)
CONTEXTS = (2, 1024, 4096)
BATCHES = (1, 16, 64)
MESSAGES = (1024, 2**20, 2**28)


def gemm_us(m: int, n: int, k: int) -> float:
    """A bilinear form in (n, k), and a line in m; not far from an H100's."""
    return 5.0 + 8e-7 * n * k + 1e-4 * n + 2e-4 * k + 3e-9 * m * n * k


def prompt_us(tokens: int) -> float:
    return 10.0 + 1e-6 * tokens**2


def decode_us(batch: int, context: int) -> float:
    return 10.0 + 1e-4 * batch * context


def all_reduce_us(size: int) -> float:
    return 4.0 + 1e-6 * size


def gemm_rows() -> list[dict[str, Any]]:
    return [
        {"gemm_dtype": dtype, "m": m, "n": n, "k": k, "latency": gemm_us(m, n, k) / 1e3}
        for dtype in ("bfloat16", "fp8")
        for m in M
        for n in N
        for k in K
    ]


def attention_rows(*, is_context: bool) -> list[dict[str, Any]]:
    rows = []
    for query in (24, 32):
        calls = (
            [(1, isl, 0, prompt_us(isl)) for isl in LENGTHS]
            if is_context
            else [(b, 1, c - 1, decode_us(b, c)) for b in BATCHES for c in CONTEXTS]
        )
        for batch, isl, step, time_us in calls:
            rows.append(
                {
                    "num_heads": query,
                    "num_key_value_heads": 8,
                    "head_dim": 128,
                    "kv_cache_dtype": "bfloat16",
                    "window_size": 0,
                    "batch_size": batch,
                    "isl": isl,
                    "step": step,
                    "latency": time_us * query / 32 / 1e3,
                }
            )
    return rows


def all_reduce_rows() -> list[dict[str, Any]]:
    return [
        {
            "num_gpus": 2,
            "message_size": size,
            "backend": backend,
            "allreduce_dtype": "bfloat16",
            "latency": (all_reduce_us(size) + (20 if backend == "vllm_eager" else 0)) / 1e3,
        }
        for size in MESSAGES
        for backend in ("vllm_graph", "vllm_eager")
    ]


def write_table(file: Path, rows: list[dict[str, Any]]) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), file)
    return file


def write_system(data: Path, system: str = "h100_sxm", version: str = "0.24.0") -> Path:
    """Write all tables of a system; returns the data folder."""
    folder = data / system
    attention = folder / "attention" / "vllm" / version
    write_table(folder / "gemm" / "vllm" / version / "gemm_perf.parquet", gemm_rows())
    write_table(attention / "context_attention_perf.parquet", attention_rows(is_context=True))
    write_table(attention / "generation_attention_perf.parquet", attention_rows(is_context=False))
    write_table(
        folder / "comm" / "vllm" / version / "custom_allreduce_perf.parquet", all_reduce_rows()
    )
    return data


def close(left: float, right: float) -> bool:
    return bool(np.isclose(left, right, rtol=1e-4))
