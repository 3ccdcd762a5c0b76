"""`headway calibrate`."""

from dataclasses import dataclass
from pathlib import Path

import typer

from calibration import CalibrationError, GpuSpec, ModelSpec, Profile, load_gpu, load_model
from calibration.kernels import build_profile, find_kernel_data, load_kernel_tables
from calibration.kernels.all_reduce import link_all_reduce
from calibration.kernels.curves import Curve
from calibration.kernels.shipping import write_shipped_profiles
from calibration.kernels.system import SYSTEMS
from calibration.layerwise import build_layerwise_profile, find_layerwise_files
from calibration.profile_match import check_plausible
from calibration.profile_writing import write_profile
from sim.errors import StudyError
from sim.wording import number_of

SOURCES = ("aic", "llmservingsim")


@dataclass(frozen=True, slots=True)
class CalibrateOptions:
    """What to build from what, and where to put it."""

    source: str
    system: str | None
    model: str | None
    tensor_parallel_size: int
    kv_cache_dtype: str
    expert_parallel: bool
    data: Path | None
    kernels: Path | None
    link_bytes_per_s: float | None
    link_latency_s: float
    out: Path | None
    shipped: Path | None


def calibrate_profile(options: CalibrateOptions) -> int:
    """Build a profile, check it, write it, and say what is in it; returns the exit code."""
    if options.source not in SOURCES:
        raise StudyError(f"--from is {options.source!r}; it must be one of {', '.join(SOURCES)}")
    if options.shipped is not None:
        return _ship(options, options.shipped)
    if options.system is None or options.model is None:
        raise StudyError("--system and --model are needed: which GPU, and which model")
    model, gpu = load_model(options.model), load_gpu(options.system)
    profile = (
        _from_kernels(options, model)
        if options.source == "aic"
        else _from_layers(options, model, gpu)
    )
    check_plausible(profile, model, gpu)
    out = options.out or Path(_file_name(profile))
    write_profile(profile, out)
    for line in _summary(profile):
        typer.echo(line)
    typer.echo(f"profile: {out}")
    return 0


def _ship(options: CalibrateOptions, folder: Path) -> int:
    data = options.data or find_kernel_data()
    for gpu, (count, size) in write_shipped_profiles(data, folder).items():
        typer.echo(f"{gpu}: {number_of(count, 'profile')}, {size:,} bytes")
    return 0


def _from_kernels(options: CalibrateOptions, model: ModelSpec) -> Profile:
    data = options.data or find_kernel_data()
    tables = load_kernel_tables(data, _system(options))
    return build_profile(
        tables,
        model,
        tensor_parallel_size=options.tensor_parallel_size,
        kv_cache_dtype=options.kv_cache_dtype,
        expert_parallel=options.expert_parallel,
    )


def _from_layers(options: CalibrateOptions, model: ModelSpec, gpu: GpuSpec) -> Profile:
    if options.data is None:
        raise StudyError("--data is needed with --from llmservingsim: the folder of its profiles")
    if options.expert_parallel:
        raise StudyError("--enable-expert-parallel goes with --from aic: layers have no experts")
    tp = options.tensor_parallel_size
    files = find_layerwise_files(options.data, model, tp, _system(options))
    return build_layerwise_profile(
        files, model, gpu, tensor_parallel_size=tp, all_reduce=_all_reduce(options, gpu)
    )


def _all_reduce(options: CalibrateOptions, gpu: GpuSpec) -> Curve | None:
    tp = options.tensor_parallel_size
    if options.link_bytes_per_s is not None:
        if options.link_bytes_per_s <= 0 or options.link_latency_s < 0:
            raise StudyError("--link-gb-per-s must be above 0 and --link-latency-us 0 or more")
        if tp == 1:
            return None
        return link_all_reduce(tp, options.link_bytes_per_s, options.link_latency_s)
    if options.kernels is None:
        return None
    known = load_kernel_tables(options.kernels, gpu.name).all_reduce
    if tp > 1 and tp not in known:
        raise CalibrationError(f"{options.kernels}: has no all-reduce of {tp} GPUs")
    return known.get(tp)


def _system(options: CalibrateOptions) -> str:
    """The source's name for the GPU: as given if the source has it, else found by ours."""
    given = str(options.system)
    if options.source == "llmservingsim":
        return given
    return given if given in SYSTEMS else load_gpu(given).name


def _file_name(profile: Profile) -> str:
    measured = profile.provenance
    name = f"{measured.device}-{measured.model}-tp{measured.tensor_parallel_size}"
    name += "-ep" if measured.expert_parallel else ""
    return name.replace("/", "-") + ".json"


def _summary(profile: Profile) -> list[str]:
    measured = profile.provenance
    lines = [
        f"{measured.model} {measured.weight_dtype} on {measured.device}, tensor parallel"
        f" {measured.tensor_parallel_size}"
        f"{' with expert parallel' if measured.expert_parallel else ''},"
        f" {measured.kv_cache_dtype} KV cache",
        f"source: {measured.source}; {measured.kernel_backend}",
        f"covers {profile.dense.axis[0]:g} to {profile.dense.axis[-1]:g} tokens a step, up to"
        f" {profile.decode_attention.rows[-1]:g} decodes, contexts up to"
        f" {profile.decode_attention.columns[-1]:g}",
    ]
    for table, errors in profile.fit.items():
        if isinstance(errors, dict) and errors.get("num_points"):
            lines.append(
                f"{table}: {number_of(errors['num_points'], 'point')} left out in turn, error mean"
                f" {100 * errors['mean']:.1f} %, p50 {100 * errors['p50']:.1f} %,"
                f" p90 {100 * errors['p90']:.1f} %, bias {100 * errors['bias']:+.1f} %"
            )
    return lines
