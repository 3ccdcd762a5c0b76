"""The profiles that ship with this package: one archive a GPU, one profile a member.

They are built from `aiconfigurator-core`'s kernel tables by `headway calibrate --shipped`; see
`data/profiles/NOTICE`.
"""

import hashlib
import json
import lzma
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from calibration.dtypes import kv_dtype_bytes
from calibration.gpu_spec import GpuSpec
from calibration.load_model import canonical_model_name, load_model, model_names
from calibration.model_spec import ModelSpec
from calibration.profile_cost import ProfileCost
from calibration.profile_format import Profile, parse_profile

_FOLDER = "data/profiles"
_SUFFIX = ".json.xz"
_PRESET = 9 | lzma.PRESET_EXTREME


def shipped_profile(
    model: ModelSpec,
    gpu: GpuSpec,
    tensor_parallel_size: int = 1,
    kv_cache_dtype: str = "auto",
    *,
    expert_parallel: bool = False,
) -> ProfileCost | None:
    """Return the step times of a shipped profile, None if none was made for exactly this.

    A model counts as a built-in one only if it has the same sizes.
    """
    name = canonical_model_name(model.name)
    if name not in model_names() or not _same_sizes(load_model(name), model):
        return None
    is_fp8 = kv_dtype_bytes(kv_cache_dtype, model.dtype) == 1
    kv_format = "fp8" if is_fp8 else model.dtype
    member = member_name(
        name,
        model.weight_dtype,
        kv_format,
        tensor_parallel_size,
        expert_parallel=expert_parallel and tensor_parallel_size > 1,
    )
    return _read(gpu.name, member)


def shipped_profile_names(gpu_name: str) -> list[str]:
    """Return the members of a GPU's archive; none if it has no archive."""
    return sorted(_archive(gpu_name))


def member_name(
    model: str, weight_dtype: str, kv_cache_dtype: str, tp: int, *, expert_parallel: bool = False
) -> str:
    """Return a profile's name in the archive of its GPU."""
    suffix = ".ep" if expert_parallel else ""
    return f"{model}.{weight_dtype}.kv-{kv_cache_dtype}.tp{tp}{suffix}"


def write_archive(profiles: Iterable[Profile], file: Path) -> int:
    """Write profiles of one GPU into an archive; returns its size in bytes.

    Compressed as a whole, as profiles of one GPU share many tables. Equal profiles, equal bytes.
    """
    members = {_name_of(profile): profile.to_json() for profile in profiles}
    content = lzma.compress(_text(members).encode(), preset=_PRESET)
    file.write_bytes(content)
    return len(content)


def _name_of(profile: Profile) -> str:
    measured = profile.provenance
    return member_name(
        canonical_model_name(measured.model),
        measured.weight_dtype,
        measured.kv_cache_dtype,
        measured.tensor_parallel_size,
        expert_parallel=measured.expert_parallel,
    )


@cache
def _archive(gpu_name: str) -> dict[str, Any]:
    entry = files("calibration").joinpath(_FOLDER, f"{gpu_name}{_SUFFIX}")
    if not entry.is_file():
        return {}
    members: dict[str, Any] = json.loads(lzma.decompress(entry.read_bytes()))
    return members


def _read(gpu_name: str, member: str) -> ProfileCost | None:
    document = _archive(gpu_name).get(member)
    if document is None:
        return None
    where = f"shipped profile {gpu_name}/{member}"
    sha256 = hashlib.sha256(_text(document).encode()).hexdigest()
    return ProfileCost(parse_profile(document, where, sha256))


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def _same_sizes(built_in: ModelSpec, model: ModelSpec) -> bool:
    names = (
        "num_hidden_layers",
        "hidden_size",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "intermediate_size",
        "vocab_size",
        "has_qk_norm",
        "dtype",
        "experts",
        "window",
        "num_window_layers",
    )
    return all(getattr(built_in, name) == getattr(model, name) for name in names)
