"""Weight quantisation: what a checkpoint's linear layers cost in memory."""

import re
from dataclasses import dataclass
from typing import Any

from calibration.errors import CalibrationError

_NEVER_QUANTISED = re.compile(r"(norm|lm_head|embed_tokens)(\.weight)?$")
_SCALE_BYTES = 2.0
MXFP4_BYTES_PER_WEIGHT = 0.5 + 1 / 32
"""Four bits a weight and a shared exponent of a byte for each 32 (OCP microscaling formats)."""


@dataclass(frozen=True, slots=True)
class Quantization:
    """Format of the weights of the linear layers; embeddings, lm_head and norms stay as they are.

    Attributes:
        method: the checkpoint's `quant_method`.
        weight_dtype: fp8, int8, int4 or nvfp4.
        bytes_per_weight: with the share of scales and zero points.
        has_fp8_compute: whether activations are fp8 too, so that GEMMs run at the fp8 rate.
    """

    method: str
    weight_dtype: str
    bytes_per_weight: float
    has_fp8_compute: bool = False


FP8 = Quantization("fp8", "fp8", 1.0, has_fp8_compute=True)
"""One scale a tensor: its bytes don't count. Weights and activations are fp8 (W8A8)."""


NVFP4 = Quantization("nvfp4", "nvfp4", 0.5 + 1 / 16)
"""Four bits a weight and an fp8 scale for each 16; products run in fp4 where the GPU can."""


def int4(method: str, group_size: int, *, has_zero_points: bool) -> Quantization:
    """Return 4-bit weights with an fp16 scale (and a 4-bit zero point) for each group."""
    group_bytes = _SCALE_BYTES + (0.5 if has_zero_points else 0.0)
    extra = group_bytes / group_size if group_size > 0 else 0.0
    return Quantization(method, "int4", 0.5 + extra)


NAMED: dict[str, Quantization] = {
    "fp8": FP8,
    "awq": int4("awq", 128, has_zero_points=True),
    "gptq": int4("gptq", 128, has_zero_points=True),
    "nvfp4": NVFP4,
}
"""Quantisations that can be asked for by name, with the usual group size of 128."""


def parse_quantization(config: dict[str, Any], where: str) -> Quantization:
    """Return the quantisation that a config.json's `quantization_config` describes.

    Raises:
        CalibrationError: a method, width or exclusion list that is not supported; names the key.
    """
    method = str(config.get("quant_method", "")).lower()
    _check_exclusions(config, where)
    if method in ("fp8", "fbgemm_fp8"):
        return Quantization(method, "fp8", 1.0 + _fp8_block_share(config, where), True)
    if method == "modelopt" and str(config.get("quant_algo", "")).upper() == "NVFP4":
        return NVFP4
    if method in ("awq", "gptq"):
        return _int_weights(method, config, where)
    if method == "compressed-tensors":
        return _compressed_tensors(config, where)
    raise CalibrationError(
        f"{where}: quantization_config.quant_method is {config.get('quant_method')!r};"
        " supported are fp8, fbgemm_fp8, awq, gptq, compressed-tensors and modelopt's NVFP4"
    )


def _fp8_block_share(config: dict[str, Any], where: str) -> float:
    """Return the bytes of an fp32 scale for each block of weights, as a share of a weight."""
    block = config.get("weight_block_size")
    if block is None:
        return 0.0
    if not isinstance(block, list) or len(block) != 2 or not all(map(_is_count, block)):
        raise CalibrationError(
            f"{where}: quantization_config.weight_block_size is {block!r};"
            " it must be two whole numbers above 0"
        )
    rows, columns = map(int, block)
    return 4.0 / (rows * columns)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _group_size(value: Any, where: str) -> int:
    """Return the weights that share a scale; -1 (a whole row) and None count as 0: no share."""
    if value is None or value == -1:
        return 0
    if not _is_count(value):
        raise CalibrationError(
            f"{where}: quantization_config group_size is {value!r};"
            " it must be a whole number above 0, or -1"
        )
    return int(value)


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise CalibrationError(f"{where}: quantization_config has {value!r} for an object")
    return value


def _int_weights(method: str, config: dict[str, Any], where: str) -> Quantization:
    bits = config.get("bits", config.get("w_bit"))
    group_size = _group_size(config.get("group_size", config.get("q_group_size", 128)), where)
    if bits == 4:
        return int4(method, group_size, has_zero_points=True)
    if bits == 8:
        share = _SCALE_BYTES / group_size if group_size else 0.0
        return Quantization(method, "int8", 1.0 + share)
    raise CalibrationError(f"{where}: quantization_config.bits is {bits!r}; supported are 4 and 8")


def _compressed_tensors(config: dict[str, Any], where: str) -> Quantization:
    groups = _object(config.get("config_groups") or {}, where)
    if len(groups) != 1:
        raise CalibrationError(
            f"{where}: quantization_config.config_groups has {len(groups)} groups;"
            " only checkpoints with one format for all linear layers are supported"
        )
    (group,) = groups.values()
    weights = _object(_object(group, where).get("weights") or {}, where)
    kind = (weights.get("type"), weights.get("num_bits"))
    if kind == ("float", 8):
        has_fp8_activations = group.get("input_activations") is not None
        return Quantization("compressed-tensors", "fp8", 1.0, has_fp8_activations)
    if kind == ("int", 8):
        return Quantization("compressed-tensors", "int8", 1.0)
    if kind == ("int", 4):
        group_size = _group_size(weights.get("group_size"), where)
        symmetric = bool(weights.get("symmetric", True))
        return int4("compressed-tensors", group_size, has_zero_points=not symmetric)
    raise CalibrationError(
        f"{where}: quantization_config.config_groups weights are {kind[1]}-bit {kind[0]};"
        " supported are 8-bit float, 8-bit int and 4-bit int"
    )


def _check_exclusions(config: dict[str, Any], where: str) -> None:
    """Refuse checkpoints that leave some linear layers unquantised: their size would be wrong."""
    for key in ("modules_to_not_convert", "ignore", "ignored_layers"):
        names = config.get(key) or []
        if not isinstance(names, list):
            raise CalibrationError(f"{where}: quantization_config.{key} must be a list of names")
        for name in names:
            if not _NEVER_QUANTISED.search(str(name)):
                raise CalibrationError(
                    f"{where}: quantization_config.{key} leaves {name!r} unquantised;"
                    " only lm_head, embeddings and norms may be left out"
                )
