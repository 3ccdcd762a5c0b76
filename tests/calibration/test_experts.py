"""Mixtures of experts and windowed attention: sizes, kernels, and what is refused."""

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibration import (
    CalibrationError,
    ProfileCost,
    RooflineCost,
    UnmeasuredError,
    compute_num_gpu_blocks,
    decode_shape,
    kv_cache_bytes_per_token,
    load_gpu,
    load_model,
    load_profile,
    shipped_profile,
)
from calibration.kernels.attention import AttentionTables, Heads
from calibration.kernels.layer_attention import LayerAttention
from calibration.kernels.moe import experts_curve, read_experts
from calibration.model_config import parse_model_config
from calibration.shipped import read_table
from tests.calibration.kernel_files import attention_rows, write_table

GPT_OSS = load_model("gpt-oss-120b")
# Qwen3-30B-A3B: 30.5 B parameters in all by its model card.
QWEN3_MOE: dict[str, Any] = {
    "model_type": "qwen3_moe",
    "num_hidden_layers": 48,
    "hidden_size": 2048,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}


def gpt_oss_config() -> dict[str, Any]:
    return copy.deepcopy(read_table("models.json", "models")["gpt-oss-120b"]["config"])


def test_gpt_oss_has_its_published_sizes() -> None:
    """Model card: 116.83 B parameters."""
    assert GPT_OSS.num_parameters == 116_829_156_672
    assert (GPT_OSS.window, GPT_OSS.num_window_layers) == (128, 18)
    assert kv_cache_bytes_per_token(GPT_OSS) == 2 * 36 * 8 * 64 * 2


def test_gpt_oss_takes_the_memory_that_vllm_logs() -> None:
    """ "Model loading took 64.38 GiB" on an H100 with Triton's kernel, 65.97 GiB with Marlin's
    (vllm issues 33155 and 23278): kernels pad rows, so it is not the checkpoint's 60.8 GiB.
    """
    gib = GPT_OSS.weight_bytes_per_rank(1) / 2**30
    assert gib == pytest.approx(64.38, rel=0.005)
    assert gib == pytest.approx(65.97, rel=0.025)


def test_gpt_oss_leaves_hardly_any_cache_on_one_h100() -> None:
    """vLLM 0.10.1 had -2.14 GiB left at utilisation 0.9 and 8192 tokens (vllm issue 23278), and
    1.71 GiB at 0.95 and 1024 tokens (issue 27508), both with Marlin's 65.97 GiB of weights.
    """
    with pytest.raises(CalibrationError, match="does not fit h100"):
        kv_bytes_left(0.9, 8192)
    marlin_gib = 65.97 - GPT_OSS.weight_bytes_per_rank(1) / 2**30
    assert kv_bytes_left(0.95, 1024) / 2**30 - marlin_gib == pytest.approx(1.71, abs=0.2)


def kv_bytes_left(utilization: float, num_batched_tokens: int) -> int:
    capacity = compute_num_gpu_blocks(
        GPT_OSS,
        load_gpu("h100"),
        gpu_memory_utilization=utilization,
        max_num_batched_tokens=num_batched_tokens,
        max_num_seqs=1024,
    )
    return capacity.num_gpu_blocks * capacity.block_bytes


def test_qwen3_moe_has_its_published_size() -> None:
    model = parse_model_config(QWEN3_MOE, "qwen3-30b-a3b", "config.json")
    assert model.num_parameters == pytest.approx(30.53e9, rel=1e-3)
    assert model.has_qk_norm
    assert model.experts is not None
    assert model.experts.experts_per_token == 8


@pytest.mark.parametrize(
    ("config", "changes", "message"),
    [
        (QWEN3_MOE, {"num_experts": 0}, "num_experts is 0; it must be a whole number above 0"),
        (QWEN3_MOE, {"num_experts_per_tok": 129}, "129 is more than num_experts 128"),
        (QWEN3_MOE, {"mlp_only_layers": [0]}, "only models with experts in every layer"),
        (QWEN3_MOE, {"decoder_sparse_step": 2}, "only models with experts in every layer"),
        (QWEN3_MOE, {"quantization_config": {"quant_method": "awq"}}, "of experts mxfp4 is"),
        (QWEN3_MOE, {"kv_lora_rank": 512}, "multi-head latent attention"),
        (None, {"sliding_window": None}, "sliding_window is missing"),
        (None, {"layer_types": "all"}, "layer_types is 'all'; it must be a list"),
    ],
)
def test_other_mixtures_are_refused(
    config: dict[str, Any] | None, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(CalibrationError, match=message):
        parse_model_config((config or gpt_oss_config()) | changes, "m", "config.json")


def test_a_mixture_has_no_roofline_and_no_other_format() -> None:
    with pytest.raises(CalibrationError, match="gpt-oss-120b has experts"):
        RooflineCost(GPT_OSS, load_gpu("h200"))
    with pytest.raises(CalibrationError, match="in the checkpoint's own format only"):
        load_model("gpt-oss-120b", "fp8")


def moe_rows(kernel: str, factor: float, split: int = 2, spread: int = 1) -> list[dict[str, Any]]:
    return [
        {
            "moe_dtype": "w4a16_mxfp4",
            "num_tokens": tokens,
            "hidden_size": 2880,
            "inter_size": 2880,
            "topk": 4,
            "num_experts": 128,
            "moe_tp_size": split,
            "moe_ep_size": spread,
            "distribution": distribution,
            "kernel_source": kernel,
            "latency": factor * (40 + tokens) * (1 if distribution == "balanced" else 2) / 1e3,
        }
        for tokens in (1, 64, 4096)
        for distribution in ("balanced", "power_law_1.2")
    ]


def test_the_fastest_kernel_of_skewed_experts_is_taken(tmp_path: Path) -> None:
    rows = [*moe_rows("slow", 3.0), *moe_rows("quick", 1.0)]
    file = write_table(tmp_path / "moe_perf.parquet", rows)
    experts = GPT_OSS.experts
    assert experts is not None
    curve = experts_curve(read_experts(file), file, experts, 2880, 2)
    assert curve.time_us == pytest.approx([2 * 41, 2 * 104, 2 * 4136])
    with pytest.raises(UnmeasuredError, match=r"128 experts of 2880 x 2880 in mxfp4.* parallel 4"):
        experts_curve(read_experts(file), file, experts, 2880, 4)


def test_experts_that_lie_whole_on_a_gpu_have_their_own_times(tmp_path: Path) -> None:
    rows = [*moe_rows("split", 1.0), *moe_rows("spread", 1.5, 1, 2)]
    file = write_table(tmp_path / "moe_perf.parquet", rows)
    experts = GPT_OSS.experts
    assert experts is not None
    split = experts_curve(read_experts(file), file, experts, 2880, 2)
    spread = experts_curve(read_experts(file), file, experts, 2880, 2, expert_parallel=True)
    assert spread.time_us == pytest.approx(1.5 * split.time_us)
    with pytest.raises(UnmeasuredError, match="at expert parallel 4"):
        experts_curve(read_experts(file), file, experts, 2880, 4, expert_parallel=True)


def test_a_profile_with_expert_parallel_is_used_for_nothing_else(tmp_path: Path) -> None:
    h200 = load_gpu("h200")
    spread = shipped_profile(GPT_OSS, h200, 4, expert_parallel=True)
    split = shipped_profile(GPT_OSS, h200, 4)
    assert spread is not None and split is not None
    assert "with expert parallel" in spread.provenance.label
    assert "with expert parallel" not in split.provenance.label
    # Only the experts differ between the two.
    assert spread.profile.decode_attention == split.profile.decode_attention
    assert spread.profile.dense != split.profile.dense
    # A group of one has nothing to spread.
    alone = shipped_profile(GPT_OSS, h200, 1, expert_parallel=True)
    assert alone is not None and not alone.profile.provenance.expert_parallel
    file = tmp_path / "p.json"
    file.write_text(json.dumps(spread.profile.to_json()))
    load_profile(file, model=GPT_OSS, expert_parallel=True)
    with pytest.raises(CalibrationError, match="expert_parallel True, but the study has False"):
        load_profile(file, model=GPT_OSS, expert_parallel=False)


def test_a_dense_model_has_no_experts_to_spread() -> None:
    with pytest.raises(CalibrationError, match=r"for mixtures of experts; llama-3.1-8b has none"):
        load_model("llama-3.1-8b").check_tensor_parallel(2, expert_parallel=True)


def test_layers_with_a_window_and_without_are_added_up(tmp_path: Path) -> None:
    context, generation = (
        [
            row | {"window_size": window, "latency": row["latency"] * (1.0 if not window else 0.25)}
            for row in attention_rows(is_context=is_context)
            for window in (0, 128)
        ]
        for is_context in (True, False)
    )
    tables = AttentionTables(
        write_table(tmp_path / "c.parquet", context),
        write_table(tmp_path / "g.parquet", generation),
    )
    full = LayerAttention(tables, [(1, Heads(32, 8, 128))])
    both = LayerAttention(tables, [(3, Heads(32, 8, 128)), (2, Heads(32, 8, 128, window=128))])
    assert both.decode_us() == pytest.approx((3 + 2 * 0.25) * full.decode_us())
    # Beyond its window a layer's chunk costs the same after any context.
    computed = np.array([0.0, 128.0, 60_000.0])
    windowed = both.prefill_us(computed) - 3 * full.prefill_us(computed)
    assert windowed[:, 1] == pytest.approx(windowed[:, 2])


def test_a_mixture_reads_more_experts_as_the_batch_grows() -> None:
    """128 experts of 4 a token: at 64 tokens nearly all are read, so the step grows steeply
    below and hardly above, until arithmetic takes over."""
    cost = shipped_profile(GPT_OSS, load_gpu("h200"), 2)
    assert isinstance(cost, ProfileCost)
    steps = [cost.step_time_s(decode_shape(batch, batch * 512)) for batch in (4, 32, 64, 128)]
    assert steps[1] / steps[0] > 1.5
    assert steps[3] / steps[2] < 1.3
