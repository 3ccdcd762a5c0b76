"""The work of one step of a Llama-shaped model on one GPU, as straight lines.

Every operation takes the longer of its arithmetic at peak rate and its memory traffic at peak
bandwidth. Both are straight lines in the batch's counts, so the coefficients are computed once.
"""

from dataclasses import dataclass

from calibration.gpu_spec import GpuSpec
from calibration.kv_capacity import kv_cache_bytes_per_token
from calibration.model_spec import ModelSpec

_SAMPLER_BYTES_PER_LOGIT = 10
_ALL_REDUCES_PER_LAYER = 2


@dataclass(frozen=True, slots=True)
class GemmLine:
    """A matrix product over all layers: max(rows * flops_s, weights_s + rows * rows_s)."""

    name: str
    flops_s: float
    weights_s: float
    rows_s: float


@dataclass(frozen=True, slots=True)
class AttentionLine:
    """Attention over all layers: max(pairs * pair_s, KV entries * kv_s + tokens * token_s)."""

    pair_s: float
    kv_s: float
    token_s: float


def layer_gemms(model: ModelSpec, gpu: GpuSpec, tp: int) -> list[GemmLine]:
    """Return the four products of a layer, times the layers: QKV, output, gate and up, down.

    Arithmetic 2 * rows * inputs * outputs; traffic: weights once a step, inputs and outputs of
    each row. Weights have their quantised width; the fp8 rate applies where weights and
    activations are fp8 and the GPU has it, else the 16-bit rate.
    """
    query = model.query_size // tp
    kv = model.kv_heads_per_rank(tp) * model.head_dim
    hidden = model.hidden_size
    mlp = model.intermediate_size // tp
    shapes = {
        "qkv": (hidden, query + 2 * kv),
        "output": (query, hidden),
        "gate_up": (hidden, 2 * mlp),
        "down": (mlp, hidden),
    }
    return [
        _gemm(
            name,
            shape,
            bytes_per_weight=model.bytes_per_weight,
            flops=_linear_flops(model, gpu),
            model=model,
            gpu=gpu,
        )
        for name, shape in shapes.items()
    ]


def lm_head_gemm(model: ModelSpec, gpu: GpuSpec, tp: int) -> GemmLine:
    """Return the product with the vocabulary (never quantised), one row for each logit row."""
    outputs = model.vocab_size / tp
    weight_bytes = model.hidden_size * outputs * model.dtype_bytes
    row_bytes = (model.hidden_size + outputs) * model.dtype_bytes
    return GemmLine(
        name="lm_head",
        flops_s=2 * model.hidden_size * outputs / gpu.bf16_flops,
        weights_s=weight_bytes / gpu.memory_bytes_per_s,
        rows_s=row_bytes / gpu.memory_bytes_per_s,
    )


def attention_line(model: ModelSpec, gpu: GpuSpec, kv_cache_dtype: str, tp: int) -> AttentionLine:
    """Return attention's coefficients over all layers.

    Arithmetic: 4 * query width for each pair of a query and a key it sees (two products), at the
    16-bit rate. Traffic: each KV entry of each piece read once; for each token the query read,
    the output written, its own key and value written.
    """
    query = model.query_size // tp
    layers = model.num_hidden_layers
    kv_bytes = kv_cache_bytes_per_token(model, kv_cache_dtype, tp)
    query_bytes = layers * 2 * query * model.dtype_bytes
    return AttentionLine(
        pair_s=layers * 4 * query / gpu.bf16_flops,
        kv_s=kv_bytes / gpu.memory_bytes_per_s,
        token_s=(query_bytes + kv_bytes) / gpu.memory_bytes_per_s,
    )


def elementwise_s_per_token(model: ModelSpec, gpu: GpuSpec, tp: int) -> float:
    """Return the seconds a token costs in memory-bound operations between the products.

    Each layer: two norms with residual add (read two, write two of hidden size), rotary embedding
    (query and key read and written), SiLU times gate (two read, one written). Once a step: the
    embedding (read, written) and the last norm.
    """
    query = model.query_size // tp
    kv = model.kv_heads_per_rank(tp) * model.head_dim
    layer = 2 * 4 * model.hidden_size + 2 * (query + kv) + 3 * (model.intermediate_size // tp)
    numbers = model.num_hidden_layers * layer + (2 + 4) * model.hidden_size
    return numbers * model.dtype_bytes / gpu.memory_bytes_per_s


def all_reduce_s_per_token(model: ModelSpec, gpu: GpuSpec, tp: int) -> float:
    """Return the seconds a token costs in tensor-parallel all-reduces: two a layer.

    Ring: each GPU sends 2 * (tp - 1) / tp of the message over its link, one direction.
    """
    message_bytes = model.hidden_size * model.dtype_bytes
    sent_bytes = 2 * (tp - 1) / tp * message_bytes
    num_all_reduces = _ALL_REDUCES_PER_LAYER * model.num_hidden_layers
    return num_all_reduces * sent_bytes / gpu.link_bytes_per_s


def sampler_s_per_logit_row(model: ModelSpec, gpu: GpuSpec) -> float:
    """Return the seconds a row of logits costs: 16 bits read, 32 written, 32 read once."""
    return model.vocab_size * _SAMPLER_BYTES_PER_LOGIT / gpu.memory_bytes_per_s


def _linear_flops(model: ModelSpec, gpu: GpuSpec) -> float:
    if model.weight_dtype == "nvfp4" and gpu.fp4_flops:
        return gpu.fp4_flops
    is_fp8 = model.quantization is not None and model.quantization.has_fp8_compute
    return gpu.fp8_flops if is_fp8 and gpu.fp8_flops else gpu.bf16_flops


def _gemm(
    name: str,
    shape: tuple[int, int],
    *,
    bytes_per_weight: float,
    flops: float,
    model: ModelSpec,
    gpu: GpuSpec,
) -> GemmLine:
    inputs, outputs = shape
    layers = model.num_hidden_layers
    bandwidth = gpu.memory_bytes_per_s
    return GemmLine(
        name=name,
        flops_s=layers * 2 * inputs * outputs / flops,
        weights_s=layers * inputs * outputs * bytes_per_weight / bandwidth,
        rows_s=layers * (inputs + outputs) * model.dtype_bytes / bandwidth,
    )
