"""Layer-wise timings to a `Profile`."""

from collections import Counter

import numpy as np

from calibration.cost_model import FloatArray
from calibration.decode_skew import fit_shares, skew_errors
from calibration.errors import CalibrationError
from calibration.gpu_spec import GpuSpec
from calibration.interpolation import Line
from calibration.kernels.all_reduce import gather_logits_us
from calibration.kernels.curves import Curve
from calibration.kernels.errors_of_fit import error_summary
from calibration.layerwise.attention import (
    TimedGrid,
    decode_beside_chunks,
    decode_grid,
    prefill_grid,
    read_attention,
)
from calibration.layerwise.files import LayerwiseFiles
from calibration.layerwise.skew import read_skew
from calibration.model_spec import ModelSpec
from calibration.profile_format import Profile, ProfileProvenance
from calibration.profile_tables import BoxTable, CurveTable, GridTable

_LAYER = Counter(
    ["qkv_proj", "rotary_emb", "o_proj", "gate_up_proj", "act_fn", "down_proj", "layernorm"]
) + Counter(["layernorm"])
_STEP = Counter(["embedding", "final_layernorm"])
_ALL_REDUCES_PER_LAYER = 2
_DIGITS = 5


def build_layerwise_profile(
    files: LayerwiseFiles,
    model: ModelSpec,
    gpu: GpuSpec,
    *,
    tensor_parallel_size: int = 1,
    all_reduce: Curve | None = None,
) -> Profile:
    """Return the step times of a model from timings of its single layer.

    Args:
        files: timings of this GPU's share of the layer.
        all_reduce: times over message bytes; the timings are of one GPU and have none.

    Raises:
        CalibrationError: a file can't be used, or all-reduces are needed and not given.
    """
    if tensor_parallel_size > 1 and all_reduce is None:
        raise CalibrationError(
            f"{files.folder / files.stem}: layer-wise timings have no all-reduce; with tensor"
            f" parallel {tensor_parallel_size} give kernel tables of {gpu.name} that have one"
        )
    times = read_attention(files)
    prefill, decode = prefill_grid(times), decode_grid(times)
    layers = model.num_hidden_layers
    alone, beside = read_skew(files)
    skew, skew_beside = fit_shares(alone), fit_shares(beside)
    least = min(float(prefill.time_us.min()), float(decode.time_us.min()))
    return Profile(
        provenance=_provenance(files, model, gpu, tensor_parallel_size),
        dense=_dense(files, model, all_reduce),
        logits=_logits(files, model, all_reduce),
        prefill_attention=_grid("new_tokens", "computed_tokens", prefill, layers),
        decode_attention=_grid("num_decodes", "mean_context", decode, layers),
        decode_beside_chunks=_box(*decode_beside_chunks(times), layers),
        attention_launch_us=float(np.floor(layers * least)),
        decode_skew=skew,
        decode_skew_beside_chunks=skew_beside,
        fit={
            "method": "each measured point left out and interpolated from its neighbours",
            "prefill_attention": error_summary(prefill.leave_out_errors),
            "decode_attention": error_summary(decode.leave_out_errors),
            "decode_skew": skew_errors(alone, skew),
            "decode_skew_beside_chunks": skew_errors(beside, skew_beside),
        },
        path=str(files.folder / files.stem),
    )


def _dense(files: LayerwiseFiles, model: ModelSpec, all_reduce: Curve | None) -> CurveTable:
    by_layer: dict[str, dict[int, float]] = {}
    for layer, tokens, time_us in files.rows("dense", ("layer", "tokens")):
        by_layer.setdefault(layer, {})[tokens] = time_us
    in_layer = _LAYER + Counter(["qk_norm"]) if model.has_qk_norm else _LAYER
    for name in [*in_layer, *_STEP]:
        if name not in by_layer:
            raise CalibrationError(f"{files.folder / files.stem}_dense.csv: has no layer {name}")
    tokens = sorted(set.intersection(*(set(times) for times in by_layer.values())))
    axis = np.array(tokens, dtype=np.float64)
    layer_us = np.array([_sum(by_layer, in_layer, count) for count in tokens])
    if all_reduce is not None:
        message_bytes = axis * model.hidden_size * model.dtype_bytes
        layer_us = layer_us + _ALL_REDUCES_PER_LAYER * all_reduce.at(message_bytes)
    step_us = np.array([_sum(by_layer, _STEP, count) for count in tokens])
    return _curve("num_tokens", axis, model.num_hidden_layers * layer_us + step_us)


def _sum(by_layer: dict[str, dict[int, float]], parts: Counter[str], tokens: int) -> float:
    return sum(count * by_layer[name][tokens] for name, count in parts.items())


def _logits(files: LayerwiseFiles, model: ModelSpec, all_reduce: Curve | None) -> CurveTable:
    parts: dict[str, dict[int, float]] = {}
    for layer, sequences, time_us in files.rows("per_sequence", ("layer", "sequences")):
        parts.setdefault(layer, {})[sequences] = time_us
    axis = sorted({count for times in parts.values() for count in times})
    at = np.array(axis, dtype=np.float64)
    lines = [
        Line(sorted(times), [times[n] for n in sorted(times)]).at_each(at)
        for times in parts.values()
    ]
    total = np.asarray(sum(lines)) + gather_logits_us(all_reduce, model, at)
    return _curve("num_logits", at, total)


def _curve(name: str, axis: FloatArray, times: FloatArray) -> CurveTable:
    return CurveTable(name, tuple(axis.tolist()), _rounded(times))


def _grid(row_name: str, column_name: str, grid: TimedGrid, layers: int) -> GridTable:
    times = tuple(_rounded(layers * row) for row in grid.time_us)
    rows, columns = tuple(grid.rows.tolist()), tuple(grid.columns.tolist())
    return GridTable(row_name, column_name, rows, columns, times)


def _box(
    chunks: FloatArray, decodes: FloatArray, contexts: FloatArray, times: FloatArray, layers: int
) -> BoxTable:
    return BoxTable(
        "new_tokens",
        "num_decodes",
        "mean_context",
        tuple(chunks.tolist()),
        tuple(decodes.tolist()),
        tuple(contexts.tolist()),
        tuple(tuple(_rounded(layers * row) for row in layer) for layer in times),
    )


def _rounded(times: FloatArray) -> tuple[float, ...]:
    return tuple(float(f"{time:.{_DIGITS}g}") for time in times.tolist())


def _provenance(
    files: LayerwiseFiles, model: ModelSpec, gpu: GpuSpec, tp: int
) -> ProfileProvenance:
    meta = files.meta
    version = meta.get("vllm_version", "of unknown version")
    return ProfileProvenance(
        device=gpu.name,
        driver=f"not recorded; CUDA {meta.get('cuda_version', 'unknown')}",
        torch=f"vLLM {version}",
        kernel_backend=f"vLLM {version} layers",
        model=model.name,
        weight_dtype=model.weight_dtype,
        kv_cache_dtype=model.dtype,
        tensor_parallel_size=tp,
        date=str(meta.get("profiled_at", "unknown"))[:10],
        execution="layers timed alone",
        source="layer-wise timings by LLMServingSim (MIT), added up by Headway",
    )
