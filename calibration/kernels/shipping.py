"""Builds the archives of profiles that ship with this package."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from calibration.errors import UnmeasuredError
from calibration.gpu_spec import load_gpu
from calibration.kernels.build import build_profile
from calibration.kernels.system import KernelTables, load_kernel_tables
from calibration.load_model import load_model, model_names
from calibration.model_spec import ModelSpec, tensor_parallel_problem
from calibration.profile_archive import write_archive
from calibration.profile_format import Profile
from calibration.profile_tables import CurveTable, GridTable

SHIPPED_SYSTEMS = ("a100_sxm", "b200_sxm", "h100_sxm", "h200_sxm", "l40s")
TENSOR_PARALLEL_SIZES = (1, 2, 4, 8)
_QUANTIZATIONS = (None, "fp8", "nvfp4")
_KV_CACHE_DTYPES = ("auto", "fp8")
_SHARE_FOR_WEIGHTS = 0.85  # of a GPU's memory: beyond it there is no room to serve
_DIGITS = 4
_LEAST_CONTEXT = 64  # decode attention is level below
_MOST_DECODES = 1024
_MOST_LOGITS = 1024


def write_shipped_profiles(data: Path, folder: Path) -> dict[str, tuple[int, int]]:
    """Write an archive for each system; returns profiles and bytes of each GPU's.

    Raises:
        CalibrationError: a system's tables are missing or broken.
    """
    folder.mkdir(parents=True, exist_ok=True)
    sizes: dict[str, tuple[int, int]] = {}
    for system in SHIPPED_SYSTEMS:
        tables = load_kernel_tables(data, system)
        profiles = list(_profiles(tables))
        file = folder / f"{tables.gpu_name}.json.xz"
        sizes[tables.gpu_name] = (len(profiles), write_archive(profiles, file))
    return sizes


def _profiles(tables: KernelTables) -> Iterator[Profile]:
    for name in model_names():
        for quantization in _QUANTIZATIONS:
            if quantization is not None and load_model(name).experts is not None:
                continue
            model = load_model(name, quantization)
            for tp in TENSOR_PARALLEL_SIZES:
                if not _is_usual(model, tables.gpu_name, tp):
                    continue
                for kv_cache_dtype in _KV_CACHE_DTYPES:
                    for expert_parallel in _expert_parallels(model, tp):
                        profile = _built(tables, model, tp, kv_cache_dtype, expert_parallel)
                        if profile is not None:
                            yield thinned(profile)


def _expert_parallels(model: ModelSpec, tp: int) -> tuple[bool, ...]:
    return (False, True) if model.experts is not None and tp > 1 else (False,)


def _built(
    tables: KernelTables, model: ModelSpec, tp: int, kv_cache_dtype: str, expert_parallel: bool
) -> Profile | None:
    """Return the profile, None if a kernel that it needs was not measured on this GPU."""
    if model.experts is None and model.weight_dtype not in ("bfloat16", *tables.gemm):
        return None
    try:
        return build_profile(
            tables,
            model,
            tensor_parallel_size=tp,
            kv_cache_dtype=kv_cache_dtype,
            expert_parallel=expert_parallel,
        )
    except UnmeasuredError:
        return None


def _is_usual(model: ModelSpec, gpu_name: str, tp: int) -> bool:
    if tensor_parallel_problem(model, tp) is not None:
        return False
    room = _SHARE_FOR_WEIGHTS * load_gpu(gpu_name).usable_memory_bytes
    return model.weight_bytes_per_rank(tp) <= room


def thinned(profile: Profile) -> Profile:
    """Return the profile without points that change nothing, and times to four digits."""
    decode = profile.decode_attention
    columns = [j for j, context in enumerate(decode.columns) if j == 0 or context >= _LEAST_CONTEXT]
    rows = [i for i, batch in enumerate(decode.rows) if batch <= _MOST_DECODES]
    points = [i for i, rows in enumerate(profile.logits.axis) if rows <= _MOST_LOGITS]
    every = range(len(profile.prefill_attention.columns))
    return replace(
        profile,
        dense=_curve(profile.dense, range(len(profile.dense.axis))),
        logits=_curve(profile.logits, points),
        prefill_attention=_grid(
            profile.prefill_attention, range(len(profile.prefill_attention.rows)), every
        ),
        decode_attention=_grid(decode, rows, columns),
    )


def _curve(table: CurveTable, points: range | list[int]) -> CurveTable:
    axis = tuple(table.axis[i] for i in points)
    return CurveTable(table.axis_name, axis, tuple(_rounded(table.time_us[i]) for i in points))


def _grid(table: GridTable, rows: range | list[int], columns: range | list[int]) -> GridTable:
    return GridTable(
        table.row_name,
        table.column_name,
        tuple(table.rows[i] for i in rows),
        tuple(table.columns[j] for j in columns),
        tuple(tuple(_rounded(table.time_us[i][j]) for j in columns) for i in rows),
    )


def _rounded(time_us: float) -> float:
    """Four digits are 0.05 %: far below what the measurements are good for."""
    return float(f"{time_us:.{_DIGITS}g}")
