"""KV capacity against engine logs, and its errors."""

from dataclasses import replace
from typing import Any

import pytest

from calibration import (
    CalibrationError,
    KvCapacity,
    compute_num_gpu_blocks,
    kv_cache_bytes_per_token,
    load_gpu,
    load_model,
)
from calibration.kv_capacity import working_memory_bytes

LLAMA = load_model("llama-3.1-8b")
GIB = 2**30


def blocks(model: str, gpu: str, tokens: int, seqs: int, **settings: Any) -> KvCapacity:
    return compute_num_gpu_blocks(
        load_model(model),
        load_gpu(gpu),
        max_num_batched_tokens=tokens,
        max_num_seqs=seqs,
        **({"gpu_memory_utilization": 0.9} | settings),
    )


def test_bytes_per_token_by_hand() -> None:
    assert kv_cache_bytes_per_token(LLAMA) == 2 * 32 * 8 * 128 * 2
    assert kv_cache_bytes_per_token(LLAMA, "fp8") == 2 * 32 * 8 * 128
    assert kv_cache_bytes_per_token(LLAMA, tensor_parallel_size=4) == 2 * 32 * 2 * 128 * 2
    # 16 GPUs for 8 KV heads: each holds one.
    assert kv_cache_bytes_per_token(LLAMA, tensor_parallel_size=16) == 2 * 32 * 1 * 128 * 2
    assert kv_cache_bytes_per_token(load_model("qwen2.5-7b")) == 2 * 28 * 4 * 128 * 2


def test_grouped_queries_need_a_quarter_of_multi_head() -> None:
    multi_head = replace(LLAMA, num_key_value_heads=32)
    assert kv_cache_bytes_per_token(multi_head) == 4 * kv_cache_bytes_per_token(LLAMA)


def test_rtx_4090_within_two_percent_of_the_engine() -> None:
    """vLLM 0.19 on an RTX 4090 gave 2588 blocks of 16."""
    assert blocks("llama-3.1-8b", "rtx-4090", 2048, 256).num_gpu_blocks == pytest.approx(
        2588, rel=0.02
    )


def test_h100_within_one_percent_of_a_peers_figure_and_fp8_doubles_it() -> None:
    plain = blocks("llama-3.1-8b", "h100", 8192, 1024)
    fp8 = blocks("llama-3.1-8b", "h100", 8192, 1024, kv_cache_dtype="fp8")
    assert plain.num_gpu_blocks == pytest.approx(26_312, rel=0.01)
    assert fp8.num_gpu_blocks == pytest.approx(52_625, rel=0.01)
    assert fp8.num_gpu_blocks - 2 * plain.num_gpu_blocks in (0, 1)


def test_qwen3_32b_on_two_h100_within_one_percent() -> None:
    """About 285 k tokens fit the measured end-to-end times best."""
    capacity = blocks("qwen3-32b", "h100", 4224, 1024, tensor_parallel_size=2)
    assert capacity.num_gpu_blocks * 16 == pytest.approx(285_000, rel=0.01)


# GiB of torch peak memory on an H100 with 8192 tokens and 1024 requests a batch.
@pytest.mark.parametrize(
    ("name", "tp", "peak_gib", "non_torch_gib"),
    [
        ("llama-3.1-8b", 1, 4.76, 0.14),
        ("llama-3.1-70b", 2, 4.84, 0.55),
        ("qwen3-32b", 1, 5.64, 0.14),
    ],
)
def test_working_memory_is_what_vllm_measured(
    name: str, tp: int, peak_gib: float, non_torch_gib: float
) -> None:
    reserve = working_memory_bytes(
        load_model(name), tensor_parallel_size=tp, max_num_batched_tokens=8192, max_num_seqs=1024
    )
    assert reserve / GIB == pytest.approx(peak_gib + non_torch_gib, abs=0.03)


def test_origin_says_how() -> None:
    capacity = blocks("llama-3.1-8b", "h100", 8192, 1024)
    for part in ("estimated", "0.9 of 79.18 GiB", "h100-sxm-80gb", "14.99 GiB weights", "2 MiB"):
        assert part in capacity.origin
    assert "\n" not in capacity.origin


def test_default_utilisation_is_vllms() -> None:
    settings: dict[str, Any] = {"max_num_batched_tokens": 8192, "max_num_seqs": 1024}
    default = compute_num_gpu_blocks(LLAMA, load_gpu("h100"), **settings)
    assert default.num_gpu_blocks == (
        blocks("llama-3.1-8b", "h100", 8192, 1024, gpu_memory_utilization=0.92).num_gpu_blocks
    )


def test_more_memory_or_less_batch_never_gives_fewer_blocks() -> None:
    by_utilisation = [
        blocks("llama-3.1-8b", "h100", 8192, 1024, gpu_memory_utilization=u / 100).num_gpu_blocks
        for u in range(40, 101, 5)
    ]
    assert by_utilisation == sorted(by_utilisation)
    by_seqs = [blocks("llama-3.1-8b", "h100", 8192, s).num_gpu_blocks for s in (1024, 256, 64, 1)]
    assert by_seqs == sorted(by_seqs)
    graphs = blocks("llama-3.1-8b", "h100", 8192, 1024, cuda_graph_bytes=2**21 * 100)
    assert blocks("llama-3.1-8b", "h100", 8192, 1024).num_gpu_blocks - graphs.num_gpu_blocks == 100


def test_a_model_that_does_not_fit_says_by_how_much_and_what_would() -> None:
    with pytest.raises(CalibrationError) as error:
        blocks("llama-3.1-70b", "h100", 8192, 1024)
    message = str(error.value)
    for part in (
        "llama-3.1-70b does not fit h100-sxm-80gb",
        "131.45 GiB weights",
        "bytes (71.26 GiB)",
        "the smallest tensor_parallel_size that fits is 2 (KV cache of ",
    ):
        assert part in message
    assert blocks("llama-3.1-70b", "h100", 8192, 1024, tensor_parallel_size=2).num_gpu_blocks > 0
    with pytest.raises(CalibrationError, match="size that fits is 4"):
        blocks("llama-3.1-70b", "l40s", 2048, 256, tensor_parallel_size=2)


def test_a_model_that_fits_nowhere() -> None:
    with pytest.raises(CalibrationError, match="no tensor_parallel_size up to 32 fits"):
        blocks("llama-3.1-8b", "l4", 2048, 256, gpu_memory_utilization=0.01)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gpu_memory_utilization": 0}, "gpu_memory_utilization is 0"),
        ({"gpu_memory_utilization": 1.01}, "gpu_memory_utilization is 1.01"),
        ({"gpu_memory_utilization": float("nan")}, "gpu_memory_utilization is nan"),
        ({"block_size": 0}, "block_size is 0"),
        ({"block_size": 16.0}, "block_size is 16.0"),
        ({"tensor_parallel_size": 3}, "tensor_parallel_size 3 does not divide"),
        ({"kv_cache_dtype": "fp7"}, "unknown kv_cache_dtype 'fp7'; did you mean 'fp8'"),
    ],
)
def test_bad_settings(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(CalibrationError, match=message):
        blocks("llama-3.1-8b", "h100", 8192, 1024, **changes)
    with pytest.raises(CalibrationError, match="max_num_seqs is 0"):
        blocks("llama-3.1-8b", "h100", 8192, 0)
