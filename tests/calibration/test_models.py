"""Models: published parameter counts, config.json files good and bad."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibration import CalibrationError, load_model, model_names
from calibration.model_config import parse_model_config
from calibration.shipped import read_table

LLAMA_CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}

# Totals of the safetensors indices on the Hugging Face hub.
PUBLISHED = {
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-72b": 72_706_203_648,
    "qwen3-8b": 8_190_735_360,
    "qwen3-14b": 14_768_307_200,
    "qwen3-32b": 32_762_123_264,
    "mistral-7b-v0.3": 7_248_023_552,
    "gpt-oss-120b": 116_829_156_672,  # the model card's 116.83 B, summed over its tensors
}


def write(folder: Path, **changes: Any) -> Path:
    """Write a config.json with changed keys; a value of `...` leaves the key out."""
    config = {key: value for key, value in (LLAMA_CONFIG | changes).items() if value is not ...}
    file = folder / "config.json"
    file.write_text(json.dumps(config))
    return file


def test_every_built_in_model_has_its_published_count() -> None:
    assert set(model_names()) == set(PUBLISHED)
    for name, count in PUBLISHED.items():
        assert load_model(name).num_parameters == count
        assert read_table("models.json", "models")[name]["num_parameters"] == count


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("meta-llama/Meta-Llama-3.1-8B", "llama-3.1-8b"),
        ("LLAMA-3.1-70B", "llama-3.1-70b"),
        ("meta-llama/Llama-3.3-70B-Instruct", "llama-3.1-70b"),
        ("Qwen/Qwen2.5-7B-Instruct", "qwen2.5-7b"),
        ("Qwen/Qwen3-32B", "qwen3-32b"),
        ("Qwen/Qwen3-8B-Base", "qwen3-8b"),
        ("mistralai/Mistral-7B-Instruct-v0.3", "mistral-7b-v0.3"),
    ],
)
def test_hub_names_are_aliases(alias: str, name: str) -> None:
    assert load_model(alias) == load_model(name)


def test_qwen_biases_and_norms_are_counted() -> None:
    qwen2, qwen3, llama = (load_model(n) for n in ("qwen2.5-7b", "qwen3-8b", "llama-3.1-8b"))
    assert (qwen2.has_qkv_bias, qwen2.has_output_bias, qwen2.has_qk_norm) == (True, False, False)
    assert (qwen3.has_qkv_bias, qwen3.has_qk_norm) == (False, True)
    assert (llama.has_qkv_bias, llama.has_qk_norm) == (False, False)


def test_file_and_folder_are_read(tmp_path: Path) -> None:
    file = write(tmp_path)
    for path in (file, tmp_path, str(file)):
        model = load_model(path)
        assert model.num_parameters == PUBLISHED["llama-3.1-8b"]
        assert model.head_dim == 128
        assert model.source == str(file)


def test_multi_head_attention_is_the_default(tmp_path: Path) -> None:
    assert load_model(write(tmp_path, num_key_value_heads=...)).num_key_value_heads == 32


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": ...}, "hidden_size is missing"),
        ({"num_hidden_layers": "32"}, "num_hidden_layers is '32'"),
        ({"vocab_size": -1}, "vocab_size is -1"),
        ({"vocab_size": True}, "vocab_size is True"),
        ({"num_attention_heads": 0}, "num_attention_heads is 0"),
        ({"num_key_value_heads": 5}, "num_key_value_heads 5 does not divide"),
        ({"num_attention_heads": 24}, "does not divide hidden_size"),
        ({"torch_dtype": ...}, "torch_dtype is missing"),
        ({"torch_dtype": "int3"}, "torch_dtype is 'int3'"),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings is 'no'"),
        ({"model_type": ...}, "model_type is missing"),
        ({"model_type": "gpt2"}, "model_type is 'gpt2'"),
        ({"model_type": "mistral", "sliding_window": 4096}, "sliding_window 4096 is in use"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "layer_types has 'sliding"),
        ({"kv_lora_rank": 512}, "kv_lora_rank .* latent"),
        ({"num_experts": 128}, "num_experts .* mixture of experts"),
        ({"num_local_experts": 8}, "num_local_experts .* mixture of experts"),
        ({"mamba_d_state": 128}, "mamba_d_state says .*Mamba"),
        ({"is_encoder_decoder": True}, "is_encoder_decoder .* encoder"),
        ({"vision_config": {"depth": 3}}, "vision_config .* vision"),
        ({"quantization_config": {"quant_method": "bitsandbytes"}}, "quant_method is 'bitsandb"),
        ({"quantization_config": {"quant_method": "awq", "bits": 3}}, "bits is 3"),
        ({"quantization_config": {"quant_method": "fp8", "ignored_layers": ["mlp.0"]}}, "'mlp.0'"),
        ({"quantization_config": "fp8"}, "quantization_config must be an object"),
    ],
)
def test_bad_configs_name_file_and_key(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    file = write(tmp_path, **changes)
    with pytest.raises(CalibrationError, match=message) as error:
        load_model(file)
    assert str(file) in str(error.value)


def test_a_window_that_hides_nothing_is_accepted(tmp_path: Path) -> None:
    write(tmp_path, sliding_window=131072, use_sliding_window=False)
    assert load_model(tmp_path).num_parameters == PUBLISHED["llama-3.1-8b"]
    write(tmp_path, model_type="mistral", sliding_window=131072)
    assert load_model(tmp_path).num_parameters == PUBLISHED["llama-3.1-8b"]


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(CalibrationError, match="can't be read"):
        load_model(tmp_path / "config.json")
    with pytest.raises(CalibrationError, match="can't be read"):
        load_model(tmp_path)
    file = tmp_path / "config.json"
    file.write_text("")
    with pytest.raises(CalibrationError, match="not valid JSON"):
        load_model(file)
    file.write_text("[1]")
    with pytest.raises(CalibrationError, match="one JSON object"):
        load_model(file)
    file.write_bytes(b"\xff\xfe{")
    with pytest.raises(CalibrationError, match="can't be read"):
        load_model(file)


JUNK = st.sampled_from(
    [
        None,
        True,
        -1,
        0,
        1,
        2.5,
        "",
        "x",
        "4",
        [],
        [0, 0],
        [None],
        {},
        {"a": 1},
        float("nan"),
        10**30,
    ]
)
KEYS = [*LLAMA_CONFIG, "sliding_window", "use_sliding_window", "layer_types", "head_dim"]
QUANTIZATION_KEYS = [
    "quant_method", "bits", "group_size", "weight_block_size", "ignore", "config_groups",
]  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(
    changes=st.dictionaries(st.sampled_from(KEYS), JUNK, max_size=3),
    method=st.sampled_from(["fp8", "awq", "gptq", "compressed-tensors"]),
    quantization=st.dictionaries(st.sampled_from(QUANTIZATION_KEYS), JUNK, max_size=3),
    group=st.dictionaries(st.sampled_from(["weights", "input_activations"]), JUNK, max_size=2),
    weights=st.dictionaries(
        st.sampled_from(["type", "num_bits", "group_size", "symmetric"]), JUNK, max_size=4
    ),
)
def test_junk_gives_a_model_or_one_clear_error(
    changes: dict[str, Any],
    method: str,
    quantization: dict[str, Any],
    group: dict[str, Any],
    weights: dict[str, Any],
) -> None:
    groups = {"g": {"weights": {"type": "int", "num_bits": 4} | weights} | group}
    quantised = {"quant_method": method, "bits": 4, "config_groups": groups} | quantization
    config = LLAMA_CONFIG | {"quantization_config": quantised} | changes
    try:
        model = parse_model_config(config, "m", "config.json")
    except CalibrationError as error:
        assert str(error).startswith("config.json: ")
    else:
        assert model.num_parameters > 0
        assert 0.5 <= model.bytes_per_weight <= 4


def test_a_folder_with_a_models_name_does_not_hide_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "llama-3.1-8b").mkdir()
    monkeypatch.chdir(tmp_path)
    assert load_model("llama-3.1-8b").num_parameters == PUBLISHED["llama-3.1-8b"]
    with pytest.raises(CalibrationError, match="unknown model ''"):
        load_model("")


def test_unknown_names_offer_the_nearest() -> None:
    with pytest.raises(CalibrationError, match=r"did you mean 'llama-3\.1-8b'"):
        load_model("llama-3.1-8")
    with pytest.raises(CalibrationError, match=r"known: .*qwen3-32b"):
        load_model("zzz")
    with pytest.raises(CalibrationError, match="did you mean 'fp8'"):
        load_model("llama-3.1-8b", "fp88")


# Bytes a weight: AWQ has a scale and a zero point for each group of 128; fp8 blocks a scale each.
@pytest.mark.parametrize(
    ("quantization", "dtype", "bytes_per_weight"),
    [
        ({"quant_method": "fp8"}, "fp8", 1.0),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8", 1 + 4 / 128**2),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, "int4", 0.5 + 2.5 / 128),
        ({"quant_method": "gptq", "bits": 4, "group_size": 32}, "int4", 0.5 + 2.5 / 32),
        (
            {
                "quant_method": "compressed-tensors",
                "ignore": ["lm_head"],
                "config_groups": {
                    "group_0": {
                        "weights": {"type": "int", "num_bits": 4, "group_size": 128},
                    }
                },
            },
            "int4",
            0.5 + 2 / 128,
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "ignore": ["lm_head"],
                "config_groups": {
                    "group_0": {
                        "weights": {"type": "float", "num_bits": 8},
                        "input_activations": {"num_bits": 8},
                    }
                },
            },
            "fp8",
            1.0,
        ),
    ],
)
def test_quantised_configs(
    tmp_path: Path, quantization: dict[str, Any], dtype: str, bytes_per_weight: float
) -> None:
    model = load_model(write(tmp_path, quantization_config=quantization))
    assert model.weight_dtype == dtype
    assert model.bytes_per_weight == pytest.approx(bytes_per_weight)


def test_quantised_names() -> None:
    assert load_model("Qwen/Qwen3-8B-FP8") == load_model("qwen3-8b", "fp8")
    assert load_model("qwen3-8b-awq").weight_dtype == "int4"
    assert load_model("qwen3-8b", "awq").name == "qwen3-8b-awq"


def test_weight_bytes_are_those_that_vllm_reports() -> None:
    """vLLM's log: "Loading model weights took 14.9888 GB" (Llama-3.1-8B), 15.27 (Qwen3-8B)."""
    assert load_model("llama-3.1-8b").weight_bytes_per_rank() / 2**30 == pytest.approx(
        14.9888, abs=1e-4
    )
    assert load_model("qwen3-8b").weight_bytes_per_rank() / 2**30 == pytest.approx(15.27, abs=5e-3)


def test_weights_split_over_gpus_and_kv_heads_are_copied_beyond_their_number() -> None:
    model = load_model("llama-3.1-8b")
    one, two = model.weight_bytes_per_rank(1), model.weight_bytes_per_rank(2)
    assert two == pytest.approx(one / 2, rel=3e-3)
    assert [model.kv_heads_per_rank(tp) for tp in (1, 2, 4, 8, 16)] == [8, 4, 2, 1, 1]
    for tp, field in ((3, "num_attention_heads"), (0, "whole number"), (64, "num_attention_heads")):
        with pytest.raises(CalibrationError, match=field):
            model.check_tensor_parallel(tp)


def test_nvfp4_is_four_bits_and_an_eighth_of_scale() -> None:
    """A scale of one byte for 16 weights: 4.5 bits a weight."""
    config = LLAMA_CONFIG | {
        "quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}
    }
    for model in (parse_model_config(config, "m", "c"), load_model("llama-3.1-8b-nvfp4")):
        assert model.weight_dtype == "nvfp4"
        assert model.bytes_per_weight * 8 == 4.5
    with pytest.raises(CalibrationError, match="modelopt's NVFP4"):
        other = {"quantization_config": {"quant_method": "modelopt", "quant_algo": "W4A8"}}
        parse_model_config(LLAMA_CONFIG | other, "m", "c")
