"""Does a profile belong to the study, and are its times possible at all?"""

from calibration.errors import CalibrationError
from calibration.gpu_spec import GpuSpec, load_gpu
from calibration.load_model import canonical_model_name
from calibration.model_spec import ModelSpec
from calibration.profile_format import Profile
from calibration.roofline_cost import RooflineCost

_LEAST_SHARE_OF_ROOFLINE = 0.5
_MOST_TIMES_ROOFLINE = 300.0


def check_match(
    profile: Profile,
    *,
    model: ModelSpec | None,
    gpu: GpuSpec | None,
    tensor_parallel_size: int | None,
    kv_cache_dtype: str | None,
    expert_parallel: bool | None = None,
) -> None:
    """Refuse a profile of another model, device, format or tensor parallel size.

    None means that the study does not say.

    Raises:
        CalibrationError: naming what differs, in the profile and in the study.
    """
    measured = profile.provenance
    pairs: list[tuple[str, object, object]] = []
    if model is not None:
        pairs += [
            ("model", canonical_model_name(measured.model), canonical_model_name(model.name)),
            ("weight dtype", measured.weight_dtype, model.weight_dtype),
        ]
    if gpu is not None:
        pairs.append(("device", _device_name(measured.device), gpu.name))
    if tensor_parallel_size is not None:
        pairs.append(("tensor_parallel_size", measured.tensor_parallel_size, tensor_parallel_size))
    if expert_parallel is not None:
        pairs.append(("expert_parallel", measured.expert_parallel, expert_parallel))
    if kv_cache_dtype is not None:
        asked = kv_cache_dtype
        if asked == "auto" and model is not None:
            asked = model.dtype
        if asked != "auto":
            pairs.append(("KV cache dtype", _fp8_name(measured.kv_cache_dtype), _fp8_name(asked)))
    for what, in_profile, in_study in pairs:
        if in_profile != in_study:
            raise CalibrationError(
                f"{profile.path}: measured with {what} {in_profile}, but the study has {in_study};"
                " use a profile of the same"
            )


def check_plausible(profile: Profile, model: ModelSpec, gpu: GpuSpec) -> None:
    """Refuse dense times that are far from what the GPU could do: mostly a wrong unit.

    Raises:
        CalibrationError: naming the first such entry and the time at peak rates.
    """
    if model.experts is not None:
        return  # there is no roofline of a mixture of experts
    roofline = RooflineCost(model, gpu, profile.provenance.tensor_parallel_size)
    for tokens, time_us in zip(profile.dense.axis, profile.dense.time_us, strict=True):
        least_us = roofline.dense_time_s(int(tokens)) * 1e6
        hint = None
        if time_us < _LEAST_SHARE_OF_ROOFLINE * least_us:
            hint = "milliseconds"
        elif time_us > _MOST_TIMES_ROOFLINE * least_us:
            hint = "nanoseconds"
        if hint:
            raise CalibrationError(
                f"{profile.path}: tables.dense: {time_us:g} us for {tokens:g} tokens, but"
                f" {gpu.name} needs {least_us:.0f} us at its peak rates; are the times {hint}?"
            )


def _device_name(device: str) -> str:
    try:
        return load_gpu(device).name
    except CalibrationError:
        return device


def _fp8_name(kv_cache_dtype: str) -> str:
    return "fp8_e4m3" if kv_cache_dtype == "fp8" else kv_cache_dtype
