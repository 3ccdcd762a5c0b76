"""Reads a model's sizes from its Hugging Face config.json."""

from typing import Any

from calibration.dtypes import DTYPE_BYTES
from calibration.errors import CalibrationError
from calibration.experts import EXPERT_MODEL_TYPES, parse_experts
from calibration.model_spec import ModelSpec
from calibration.quantization import Quantization, parse_quantization

SUPPORTED_MODEL_TYPES = ("llama", "mistral", "qwen2", "qwen3", *EXPERT_MODEL_TYPES)

_EXPERTS = "a mixture of experts"
_UNSUPPORTED_KEYS = {
    "kv_lora_rank": "multi-head latent attention (MLA)",
    "num_experts": _EXPERTS,
    "num_local_experts": _EXPERTS,
    "n_routed_experts": _EXPERTS,
    "moe_intermediate_size": _EXPERTS,
    "ssm_cfg": "state-space (Mamba) layers",
    "mamba_d_state": "state-space (Mamba) layers",
    "state_size": "state-space (Mamba) layers",
    "linear_num_key_heads": "linear attention layers",
    "is_encoder_decoder": "an encoder and a decoder",
    "vision_config": "a vision encoder",
    "audio_config": "an audio encoder",
    "attention_chunk_size": "chunked local attention",
}


def parse_model_config(config: dict[str, Any], name: str, where: str) -> ModelSpec:
    """Return the model that a parsed config.json describes.

    Args:
        config: the parsed file.
        name: name for tables and messages.
        where: the file, for messages.

    Raises:
        CalibrationError: a key is missing or wrong, or the model has a part that is not modelled
            here; the file and the key are named.
    """
    has_experts = config.get("model_type") in EXPERT_MODEL_TYPES
    experts = parse_experts(config, where) if has_experts else None
    window, num_window_layers = _windows(config, where)
    _refuse_unsupported(config, where, has_experts=has_experts)
    hidden_size = _count(config, "hidden_size", where)
    num_heads = _count(config, "num_attention_heads", where)
    num_kv_heads = _count(config, "num_key_value_heads", where, default=num_heads)
    if num_heads % num_kv_heads:
        raise CalibrationError(
            f"{where}: num_key_value_heads {num_kv_heads} does not divide"
            f" num_attention_heads {num_heads}"
        )
    model_type = _model_type(config, where)
    has_attention_bias = _flag(config, "attention_bias", where)
    return ModelSpec(
        name=name,
        num_hidden_layers=_count(config, "num_hidden_layers", where),
        hidden_size=hidden_size,
        num_attention_heads=num_heads,
        num_key_value_heads=num_kv_heads,
        head_dim=_head_dim(config, hidden_size, num_heads, where),
        intermediate_size=(
            experts.intermediate_size if experts else _count(config, "intermediate_size", where)
        ),
        vocab_size=_count(config, "vocab_size", where),
        max_position_embeddings=_count(config, "max_position_embeddings", where),
        dtype=_dtype(config, where),
        tie_word_embeddings=_flag(config, "tie_word_embeddings", where),
        has_qkv_bias=has_attention_bias or model_type == "qwen2",
        has_output_bias=has_attention_bias,
        has_mlp_bias=_flag(config, "mlp_bias", where),
        has_qk_norm=model_type in ("qwen3", "qwen3_moe"),
        quantization=None if has_experts else _quantization(config, where),
        source=where,
        experts=experts,
        window=window,
        num_window_layers=num_window_layers,
        has_attention_sinks=model_type == "gpt_oss",
    )


def _windows(config: dict[str, Any], where: str) -> tuple[int, int]:
    """Return the window of gpt_oss, and in how many layers it holds; (0, 0) for other models."""
    if config.get("model_type") != "gpt_oss":
        return 0, 0
    layer_types = config.get("layer_types")
    if not isinstance(layer_types, list):
        raise CalibrationError(f"{where}: layer_types is {layer_types!r}; it must be a list")
    return _count(config, "sliding_window", where), layer_types.count("sliding_attention")


def _refuse_unsupported(config: dict[str, Any], where: str, *, has_experts: bool) -> None:
    for key, part in _UNSUPPORTED_KEYS.items():
        if config.get(key) and not (has_experts and part == _EXPERTS):
            raise CalibrationError(
                f"{where}: {key} says that the model has {part};"
                " only dense decoder-only text models with full attention are supported"
            )
    if config.get("model_type") == "gpt_oss":
        return
    if _has_sliding_window(config, where):
        raise CalibrationError(
            f"{where}: sliding_window {config.get('sliding_window')} is in use;"
            " only full attention is supported"
        )
    layer_types = config.get("layer_types") or []
    if not isinstance(layer_types, list):
        raise CalibrationError(f"{where}: layer_types is {layer_types!r}; it must be a list")
    for kind in layer_types:
        if kind != "full_attention":
            raise CalibrationError(
                f"{where}: layer_types has {kind!r}; only full_attention is supported"
            )


def _has_sliding_window(config: dict[str, Any], where: str) -> bool:
    """Say whether any token may see less than all before it.

    Qwen configs carry a window that `use_sliding_window: false` turns off; a window as long as
    the longest context hides nothing.
    """
    if config.get("sliding_window") is None or not config.get("use_sliding_window", True):
        return False
    window = _count(config, "sliding_window", where)
    return window < _count(config, "max_position_embeddings", where)


def _model_type(config: dict[str, Any], where: str) -> str:
    model_type = config.get("model_type")
    if model_type not in SUPPORTED_MODEL_TYPES:
        problem = "is missing" if model_type is None else f"is {model_type!r}"
        raise CalibrationError(
            f"{where}: model_type {problem}; supported are {', '.join(SUPPORTED_MODEL_TYPES)}"
        )
    return str(model_type)


def _head_dim(config: dict[str, Any], hidden_size: int, num_heads: int, where: str) -> int:
    if config.get("head_dim") is not None:
        return _count(config, "head_dim", where)
    if hidden_size % num_heads:
        raise CalibrationError(
            f"{where}: head_dim is missing and num_attention_heads {num_heads}"
            f" does not divide hidden_size {hidden_size}"
        )
    return hidden_size // num_heads


def _dtype(config: dict[str, Any], where: str) -> str:
    dtype = config.get("torch_dtype", config.get("dtype"))
    if dtype is None:
        raise CalibrationError(f"{where}: torch_dtype is missing; give one of {_dtypes()}")
    short = str(dtype).removeprefix("torch.")
    if short not in DTYPE_BYTES:
        raise CalibrationError(f"{where}: torch_dtype is {dtype!r}; supported are {_dtypes()}")
    return short


def _dtypes() -> str:
    return ", ".join(DTYPE_BYTES)


def _quantization(config: dict[str, Any], where: str) -> Quantization | None:
    quantization = config.get("quantization_config")
    if quantization is None:
        return None
    if not isinstance(quantization, dict):
        raise CalibrationError(f"{where}: quantization_config must be an object")
    return parse_quantization(quantization, where)


def _count(config: dict[str, Any], key: str, where: str, default: int | None = None) -> int:
    value = config.get(key, default)
    if value is None:
        raise CalibrationError(f"{where}: {key} is missing; it must be a whole number")
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise CalibrationError(f"{where}: {key} is {value!r}; it must be a whole number above 0")
    return value


def _flag(config: dict[str, Any], key: str, where: str) -> bool:
    value = config.get(key, False)
    if not isinstance(value, bool):
        raise CalibrationError(f"{where}: {key} is {value!r}; it must be true or false")
    return value
