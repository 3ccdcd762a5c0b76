"""A mixture of experts: what takes the place of a dense model's MLP."""

from dataclasses import dataclass
from typing import Any

from calibration.errors import CalibrationError
from calibration.quantization import MXFP4_BYTES_PER_WEIGHT

EXPERT_MODEL_TYPES = ("gpt_oss", "qwen3_moe")
_MXFP4_ROW = 256


@dataclass(frozen=True, slots=True)
class Experts:
    """Experts of each layer; a router sends every token to a few of them.

    Attributes:
        num_experts: of a layer.
        experts_per_token: that compute a token.
        intermediate_size: of one expert.
        weight_dtype: their format: bfloat16, fp8 or mxfp4.
        bytes_per_weight: with the share of scales.
        has_bias: whether experts and router have biases.
    """

    num_experts: int
    experts_per_token: int
    intermediate_size: int
    weight_dtype: str
    bytes_per_weight: float
    has_bias: bool = False

    def linear_parameters(self, hidden_size: int) -> int:
        """Weights of all experts of a layer: gate and up, down."""
        return 3 * self.num_experts * hidden_size * self.intermediate_size

    def loaded_bytes(self, hidden_size: int) -> float:
        """Bytes that the weights of all experts of a layer take on GPUs.

        Kernels of mxfp4 want rows padded: vLLM gives every matrix 3072 in place of gpt-oss's 2880.
        Its log has "Model loading took 64.38 GiB" for gpt-oss-120b on an H100 with Triton's kernel
        (vLLM 0.14.1, vllm issue 33155) and 65.97 GiB with Marlin's (0.10.1, issue 23278), where the
        checkpoint has 60.8 GiB; so it is 64.57 GiB.
        """
        padded = -(-hidden_size // _MXFP4_ROW) * _MXFP4_ROW
        rows = padded if self.weight_dtype == "mxfp4" else hidden_size
        return self.linear_parameters(rows) * self.bytes_per_weight

    def other_parameters(self, hidden_size: int) -> int:
        """The router of a layer, and biases."""
        router = hidden_size * self.num_experts
        if not self.has_bias:
            return router
        expert_bias = 2 * self.intermediate_size + hidden_size
        return router + self.num_experts * (1 + expert_bias)


def parse_experts(config: dict[str, Any], where: str) -> Experts:
    """Return the experts that a config.json of one of `EXPERT_MODEL_TYPES` describes.

    Raises:
        CalibrationError: a key is missing or wrong, or some layers have none.
    """
    is_gpt_oss = config["model_type"] == "gpt_oss"
    if config.get("mlp_only_layers") or config.get("decoder_sparse_step", 1) != 1:
        raise CalibrationError(f"{where}: only models with experts in every layer are supported")
    names = ("num_local_experts", "num_experts_per_tok", "intermediate_size")
    if not is_gpt_oss:
        names = ("num_experts", "num_experts_per_tok", "moe_intermediate_size")
    num_experts, per_token, size = (_count(config, name, where) for name in names)
    if per_token > num_experts:
        raise CalibrationError(
            f"{where}: {names[1]} {per_token} is more than {names[0]} {num_experts}"
        )
    dtype, width = _format(config, where)
    return Experts(num_experts, per_token, size, dtype, width, has_bias=is_gpt_oss)


def _format(config: dict[str, Any], where: str) -> tuple[str, float]:
    quantization = config.get("quantization_config")
    if quantization is None:
        return "bfloat16", 2.0
    method = quantization.get("quant_method") if isinstance(quantization, dict) else None
    if method == "mxfp4":
        return "mxfp4", MXFP4_BYTES_PER_WEIGHT
    raise CalibrationError(
        f"{where}: quantization_config.quant_method is {method!r}; of experts mxfp4 is supported"
    )


def _count(config: dict[str, Any], key: str, where: str) -> int:
    value = config.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise CalibrationError(f"{where}: {key} is {value!r}; it must be a whole number above 0")
    return value
