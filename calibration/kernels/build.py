"""Adds measured kernels up to the step times of a model: a `Profile`."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from calibration.cost_model import FloatArray
from calibration.dtypes import kv_dtype_bytes
from calibration.errors import CalibrationError, UnmeasuredError
from calibration.gpu_spec import GpuSpec, load_gpu
from calibration.kernels import elementwise
from calibration.kernels.all_reduce import gather_logits_us
from calibration.kernels.attention import Heads
from calibration.kernels.curves import Curve
from calibration.kernels.errors_of_fit import error_summary
from calibration.kernels.gemm import GemmTable
from calibration.kernels.layer_attention import LayerAttention
from calibration.kernels.system import KernelTables
from calibration.model_spec import ModelSpec
from calibration.profile_format import Profile, ProfileProvenance
from calibration.profile_tables import CurveTable, GridTable

_COMPUTED_TOKENS = (0, 512, 2048, 8192, 32768, 131072)
_MAX_LOGITS = 4096
_DIGITS = 5
_ALL_REDUCES_PER_LAYER = 2


@dataclass(frozen=True, slots=True)
class _Shard:
    """One GPU's share of a model."""

    tables: KernelTables
    model: ModelSpec
    gpu: GpuSpec
    tp: int
    kv_dtype: str
    expert_parallel: bool = False

    def heads(self, window: int = 0) -> Heads:
        query = self.model.num_attention_heads // self.tp
        kv = self.model.kv_heads_per_rank(self.tp)
        return Heads(query, kv, self.model.head_dim, self.kv_dtype, window)

    @property
    def attention_kinds(self) -> list[tuple[int, Heads]]:
        """(layers, heads) of full attention, and of attention to a window where there is any."""
        model = self.model
        kinds = [(model.num_hidden_layers - model.num_window_layers, self.heads())]
        if model.num_window_layers:
            kinds.append((model.num_window_layers, self.heads(model.window)))
        return kinds


def build_profile(
    tables: KernelTables,
    model: ModelSpec,
    *,
    tensor_parallel_size: int = 1,
    kv_cache_dtype: str = "auto",
    expert_parallel: bool = False,
) -> Profile:
    """Return the step times of a model on the tables' GPU, from kernels alone.

    dense(T) = layers * (products, experts + norms, rotary embedding, activation + two all-reduces)
    + embedding and last norm; logits(R) = product with the vocabulary + sampler; attention from
    the kernels of this GPU's share of heads. With `expert_parallel` each GPU has some experts
    whole; they are timed so, and the all-reduce after them stays. No host time: that is the
    engine's, not the GPU's.

    Raises:
        CalibrationError: the model can't be split so, or a kernel it needs was not measured.
    """
    model.check_tensor_parallel(tensor_parallel_size, expert_parallel=expert_parallel)
    gpu = load_gpu(tables.gpu_name)
    kv_dtype = _kv_dtype(kv_cache_dtype, model)
    is_spread = expert_parallel and tensor_parallel_size > 1
    shard = _Shard(tables, model, gpu, tensor_parallel_size, kv_dtype, is_spread)
    attention = LayerAttention(tables.attention, shard.attention_kinds)
    return Profile(
        provenance=_provenance(shard),
        dense=_dense(shard),
        logits=_logits(shard),
        prefill_attention=_prefill(attention),
        decode_attention=_decode(attention),
        attention_launch_us=attention.launch_us(),
        max_decode_context_tokens=attention.max_context_tokens,
        fit=_fit(shard, attention),
        path=f"kernels of {tables.system}",
    )


def _kv_dtype(kv_cache_dtype: str, model: ModelSpec) -> str:
    return "fp8" if kv_dtype_bytes(kv_cache_dtype, model.dtype) == 1 else "bfloat16"


def _gemm_dtype(model: ModelSpec) -> str:
    """Return the tables' name of the format of the model's linear layers."""
    weights = model.quantization
    if weights is None:
        return "bfloat16"
    if weights.has_fp8_compute and weights.weight_dtype == "fp8":
        return "fp8" if weights.bytes_per_weight == 1.0 else "fp8_block"
    if weights.weight_dtype == "nvfp4":
        return "nvfp4"
    raise CalibrationError(
        f"{model.name}: the kernel tables have no products with {weights.weight_dtype} weights"
        f" ({weights.method}); they have bfloat16, fp8 and, on Blackwell, nvfp4"
    )


def _layer_products(shard: _Shard) -> list[tuple[int, int]]:
    """Return (outputs, inputs) of one layer's products on one GPU; experts are apart."""
    model, tp = shard.model, shard.tp
    query = model.query_size // tp
    kv = model.kv_heads_per_rank(tp) * model.head_dim
    mlp = model.intermediate_size // tp
    hidden = model.hidden_size
    attention = [(query + 2 * kv, hidden), (hidden, query)]
    if model.experts is not None:  # the router, which every GPU runs whole
        return [*attention, (model.experts.num_experts, hidden)]
    return [*attention, (2 * mlp, hidden), (hidden, mlp)]


def _dense(shard: _Shard) -> CurveTable:
    gemm = shard.tables.gemm_of(_gemm_dtype(shard.model))
    curves = [gemm.curve(n, k) for n, k in _layer_products(shard)]
    if shard.model.experts is not None:
        curves.append(
            shard.tables.experts_of(
                shard.model.experts,
                shard.model.hidden_size,
                shard.tp,
                expert_parallel=shard.expert_parallel,
            )
        )
    tokens = _common_axis(curves)
    layer = sum((curve.at(tokens) for curve in curves), np.zeros_like(tokens))
    layer += elementwise.layer_us(shard.model, shard.gpu, shard.tp, tokens)
    layer += _all_reduce_us(shard, tokens)
    total = shard.model.num_hidden_layers * layer
    total += elementwise.step_us(shard.model, shard.gpu, tokens)
    return _curve_table("num_tokens", tokens, total)


def _all_reduce_us(shard: _Shard, tokens: FloatArray) -> FloatArray:
    all_reduce = _all_reduce(shard)
    if all_reduce is None:
        return np.zeros_like(tokens)
    message_bytes = tokens * shard.model.hidden_size * shard.model.dtype_bytes
    return _ALL_REDUCES_PER_LAYER * all_reduce.at(message_bytes)


def _all_reduce(shard: _Shard) -> Curve | None:
    """Return the group's all-reduces, None for a group of one."""
    if shard.tp == 1:
        return None
    known = shard.tables.all_reduce
    if shard.tp not in known:
        raise UnmeasuredError(
            f"{shard.tables.files['all_reduce']}: has no all-reduce of {shard.tp} GPUs;"
            f" it has {', '.join(map(str, known))}"
        )
    return known[shard.tp]


def _logits(shard: _Shard) -> CurveTable:
    """lm_head stays in 16 bits, whatever the layers are in."""
    model = shard.model
    head = shard.tables.gemm_of("bfloat16").curve(
        -(-model.vocab_size // shard.tp), model.hidden_size
    )
    rows = head.axis[head.axis <= _MAX_LOGITS]
    total = head.at(rows) + elementwise.sampler_us(model, shard.gpu, rows)
    total += gather_logits_us(_all_reduce(shard), model, rows)
    return _curve_table("num_logits", rows, total)


def _prefill(attention: LayerAttention) -> GridTable:
    computed = np.array(_COMPUTED_TOKENS, dtype=np.float64)
    times = attention.prefill_us(computed)
    return _grid_table("new_tokens", "computed_tokens", attention.new, computed, times)


def _decode(attention: LayerAttention) -> GridTable:
    times = attention.decode_us()
    return _grid_table("num_decodes", "mean_context", attention.batch, attention.context, times)


def _fit(shard: _Shard, attention: LayerAttention) -> dict[str, Any]:
    """Leave-one-out errors of the interpolation: upper bounds, as each gap is doubled."""
    gemm = shard.tables.gemm_of(_gemm_dtype(shard.model))
    over_tokens = [gemm.curve(n, k).leave_out_errors() for n, k in _layer_products(shard)]
    return {
        "method": "each measured point left out and interpolated from its neighbours",
        "dense": error_summary(np.concatenate(over_tokens)),
        "dense_shapes": error_summary(_shape_errors(gemm, shard)),
        "prefill_attention": error_summary(attention.prefill_errors()),
        "decode_attention": error_summary(attention.decode_errors()),
    }


def _shape_errors(gemm: GemmTable, shard: _Shard) -> FloatArray:
    """Errors that matter to this model: none if all its products were measured as they are."""
    on_grid = all(n in gemm.n and k in gemm.k for n, k in _layer_products(shard))
    return np.zeros(0) if on_grid else gemm.shape_errors()


def _provenance(shard: _Shard) -> ProfileProvenance:
    tables, model = shard.tables, shard.model
    versions = ", ".join(f"{part} {version}" for part, version in sorted(tables.versions.items()))
    return ProfileProvenance(
        device=shard.gpu.name,
        driver="not recorded in the tables",
        torch=f"vLLM {tables.versions['gemm']}",
        kernel_backend=tables.releases(shard.tp, with_experts=model.experts is not None),
        model=model.name,
        weight_dtype=model.weight_dtype,
        kv_cache_dtype="fp8" if shard.kv_dtype == "fp8" else model.dtype,
        tensor_parallel_size=shard.tp,
        date="2026-09",
        execution="kernels timed alone; all-reduce in a captured graph",
        source="aiconfigurator-core 0.12.0 kernel tables (Apache-2.0), added up by Headway",
        notes=f"vLLM versions of the tables: {versions}",
        expert_parallel=shard.expert_parallel,
    )


def _common_axis(curves: list[Curve]) -> FloatArray:
    """Return every count at which one of the curves was measured, within the range of all."""
    axis = np.unique(np.concatenate([curve.axis for curve in curves]))
    low = max(curve.axis[0] for curve in curves)
    high = min(curve.axis[-1] for curve in curves)
    within: FloatArray = axis[(axis >= low) & (axis <= high)]
    return within


def _curve_table(name: str, axis: FloatArray, times: FloatArray) -> CurveTable:
    return CurveTable(name, tuple(axis.tolist()), tuple(_rounded(times)))


def _grid_table(
    row_name: str, column_name: str, rows: FloatArray, columns: FloatArray, times: FloatArray
) -> GridTable:
    values = tuple(tuple(_rounded(row)) for row in times)
    return GridTable(row_name, column_name, tuple(rows.tolist()), tuple(columns.tolist()), values)


def _rounded(times: FloatArray) -> list[float]:
    return [float(f"{time:.{_DIGITS}g}") for time in times.tolist()]
