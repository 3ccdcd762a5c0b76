"""Norms, activations and the like: memory-bound work, which kernel tables leave out.

Each operation takes a launch inside a captured graph plus its traffic at the share of peak
bandwidth that such kernels reach. Both figures are measurements of single kernels, not of runs.
"""

from calibration.cost_model import FloatArray
from calibration.gpu_spec import GpuSpec
from calibration.model_spec import ModelSpec

LAUNCH_US = 2.5
"""One small kernel: 2.4 to 2.8 us for norm, activation and rotary embedding of a token in the
layer-wise vLLM 0.19 profiles of RTX PRO 6000 (the least entries of their tables)."""

BANDWIDTH_SHARE = 0.8
"""Of peak bandwidth; the share that aiconfigurator-core states for each of its GPUs."""

SAMPLER_LAUNCHES = 10
"""Greedy sampling of one row takes 24.6 us in the same profiles: ten small kernels."""

_SAMPLER_BYTES_PER_LOGIT = 10  # 16 bits read, 32 written, 32 read once
_OPERATIONS_PER_LAYER = 4  # two norms with residual add, rotary embedding, SiLU times gate
_OPERATIONS_PER_STEP = 2  # embedding, last norm


def layer_us(model: ModelSpec, gpu: GpuSpec, tp: int, tokens: FloatArray) -> FloatArray:
    """Return the time of one layer's operations for a batch of tokens."""
    query = model.query_size // tp
    kv = model.kv_heads_per_rank(tp) * model.head_dim
    numbers = 2 * 4 * model.hidden_size + 2 * (query + kv) + _mlp_numbers(model, tp)
    launches = _OPERATIONS_PER_LAYER - (1 if model.experts is not None else 0)
    if model.has_qk_norm:  # read and written once more, in one kernel
        numbers += 2 * (query + kv)
        launches += 1
    return _time_us(gpu, launches, numbers * model.dtype_bytes, tokens)


def step_us(model: ModelSpec, gpu: GpuSpec, tokens: FloatArray) -> FloatArray:
    """Return the time of embedding and last norm."""
    numbers = 2 * model.hidden_size + 4 * model.hidden_size
    return _time_us(gpu, _OPERATIONS_PER_STEP, numbers * model.dtype_bytes, tokens)


def sampler_us(model: ModelSpec, gpu: GpuSpec, rows: FloatArray) -> FloatArray:
    """Return the time of sampling."""
    row_bytes = model.vocab_size * _SAMPLER_BYTES_PER_LOGIT
    return _time_us(gpu, SAMPLER_LAUNCHES, row_bytes, rows)


def _mlp_numbers(model: ModelSpec, tp: int) -> int:
    """The activation's reads and writes; that of experts is timed with them."""
    return 0 if model.experts is not None else 3 * (model.intermediate_size // tp)


def _time_us(gpu: GpuSpec, launches: int, bytes_per_row: float, rows: FloatArray) -> FloatArray:
    traffic_us = rows * bytes_per_row / (BANDWIDTH_SHARE * gpu.memory_bytes_per_s) * 1e6
    return launches * LAUNCH_US + traffic_us
