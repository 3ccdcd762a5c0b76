"""The measured-profile file: one JSON object, schema version 1, 2 or 3.

All times are microseconds of device time for one step through the whole model (all layers) on one
GPU of the tensor-parallel group.

- `format`: "headway-profile"; `schema_version`: 1; 2 if an entry marked (2) is there, 3 if one
  marked (3) is.
- `provenance`: what was measured, and on what; see `ProfileProvenance`.
- `tables`:
  - `dense` over `num_tokens`: everything whose cost is set by the tokens of the batch: embedding,
    products, norms, activations, all-reduce;
  - `logits` over `num_logits`: lm_head and sampler;
  - `prefill_attention` over `new_tokens` x `computed_tokens`: attention of one chunk;
  - `decode_attention` over `num_decodes` x `mean_context`: attention of all one-token pieces;
    contexts count the new token;
  - `decode_beside_chunks` (2, optional) over `new_tokens` (of all chunks) x `num_decodes` x
    `mean_context`: what the one-token pieces add to a batch that has chunks too; without it they
    cost what `decode_attention` says. Engines run such batches with another kernel.
  - `decode_skew` (3, optional) over `num_decodes`: what contexts of unlike length add to a step of
    decodes alone, as a `share` of the way from the time of the mean context to the time if all
    were as long as the longest; without it they cost what their mean says;
  - `decode_skew_beside_chunks` (3, optional): the same for the decodes of a step with chunks.
- `step_overhead_us`: fixed time of each step.
- `attention_launch_us` (2, optional): the fixed part of every entry of the attention tables; a
  step pays it once, as all its pieces run in one launch a layer.
- `max_decode_context_tokens` (2, optional): the most KV entries of one step among the measured
  points of `decode_attention`; cells beyond it were extrapolated when the file was made.
- `fit` (optional): residuals and held-out errors, any JSON; carried into every result.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from calibration.errors import CalibrationError
from calibration.profile_tables import (
    BoxTable,
    CurveTable,
    GridTable,
    ShareTable,
    check_keys,
    number,
    parse_box,
    parse_curve,
    parse_grid,
    parse_shares,
)

FORMAT = "headway-profile"
SCHEMA_VERSIONS = (1, 2, 3)


@dataclass(frozen=True, slots=True)
class ProfileProvenance:
    """What was measured, and on what. A profile of one thing is never used for another.

    Attributes:
        device: GPU name as in `gpu_names()`, or the CPU's own name.
        driver: driver version.
        torch: torch version, or the engine's.
        kernel_backend: the attention kernels that ran; others, if of another release.
        model: name as in `model_names()`, or a Hugging Face name.
        weight_dtype: format of the linear layers.
        kv_cache_dtype: format of the KV cache.
        tensor_parallel_size: GPUs that shared each layer.
        date: ISO day of the measurement.
        execution: cuda-graph, eager or mixed.
        source: how the tables came about (command, import).
        git_commit: of the measuring code.
        notes: anything else (clocks, power limit).
        expert_parallel: whether experts lay whole on the GPUs of the group; in a file if true.
    """

    device: str
    driver: str
    torch: str
    kernel_backend: str
    model: str
    weight_dtype: str
    kv_cache_dtype: str
    tensor_parallel_size: int
    date: str
    execution: str = ""
    source: str = ""
    git_commit: str = ""
    notes: str = ""
    expert_parallel: bool = False


_BESIDE = "decode_beside_chunks"
_SKEW, _SKEW_BESIDE = "decode_skew", "decode_skew_beside_chunks"
_SECOND_ENTRIES = ("attention_launch_us", "max_decode_context_tokens")
_OPTIONAL_PROVENANCE = ("execution", "source", "git_commit", "notes", "expert_parallel")
_REQUIRED_PROVENANCE = tuple(
    item.name for item in fields(ProfileProvenance) if item.name not in _OPTIONAL_PROVENANCE
)


@dataclass(frozen=True, slots=True)
class Profile:
    """A parsed and checked profile."""

    provenance: ProfileProvenance
    dense: CurveTable
    logits: CurveTable
    prefill_attention: GridTable
    decode_attention: GridTable
    step_overhead_us: float = 0.0
    decode_beside_chunks: BoxTable | None = None
    attention_launch_us: float = 0.0
    max_decode_context_tokens: float | None = None
    decode_skew: ShareTable | None = None
    decode_skew_beside_chunks: ShareTable | None = None
    fit: dict[str, Any] = field(default_factory=dict)
    path: str = ""
    sha256: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the profile as it stands in a file."""
        tables = {
            "dense": self.dense.to_json(),
            "logits": self.logits.to_json(),
            "prefill_attention": self.prefill_attention.to_json(),
            "decode_attention": self.decode_attention.to_json(),
        }
        added: dict[str, Any] = {}
        if self.decode_beside_chunks is not None:
            tables["decode_beside_chunks"] = self.decode_beside_chunks.to_json()
        if self.attention_launch_us:
            added["attention_launch_us"] = self.attention_launch_us
        if self.max_decode_context_tokens is not None:
            added["max_decode_context_tokens"] = self.max_decode_context_tokens
        version = 2 if added or self.decode_beside_chunks is not None else 1
        skews = ((_SKEW, self.decode_skew), (_SKEW_BESIDE, self.decode_skew_beside_chunks))
        for name, table in skews:
            if table is not None:
                tables[name], version = table.to_json(), 3
        provenance = asdict(self.provenance)
        if not self.provenance.expert_parallel:
            del provenance["expert_parallel"]
        return {
            "format": FORMAT,
            "schema_version": version,
            "provenance": provenance,
            "tables": tables,
            "step_overhead_us": self.step_overhead_us,
            **added,
            "fit": self.fit,
        }


def read_profile(path: str | Path) -> Profile:
    """Read and check a profile file.

    Raises:
        CalibrationError: no such file, not JSON, another format or schema, or a table with a gap,
            a duplicate, a wrong order, a value that is not a finite time above 0.
    """
    file = Path(path)
    try:
        content = file.read_bytes()
    except OSError as error:
        raise CalibrationError(f"{file}: can't be read as a profile: {error}") from error
    try:
        document = json.loads(content)
    except ValueError as error:
        raise CalibrationError(f"{file}: not valid JSON: {error}") from error
    return parse_profile(document, str(file), hashlib.sha256(content).hexdigest())


def parse_profile(document: Any, where: str, sha256: str = "") -> Profile:
    """Return the profile in a parsed JSON document; `where` names it in messages."""
    version = _schema_version(document, where)
    entries = check_keys(
        document,
        where,
        required=("format", "schema_version", "provenance", "tables", "step_overhead_us"),
        optional=("fit", *(_SECOND_ENTRIES if version >= 2 else ())),
    )
    at = f"{where}: tables"
    names = ("dense", "logits", "prefill_attention", "decode_attention")
    later = ((), (_BESIDE,), (_BESIDE, _SKEW, _SKEW_BESIDE))[version - 1]
    tables = check_keys(entries["tables"], at, required=names, optional=later)
    profile = Profile(
        provenance=_parse_provenance(entries["provenance"], f"{where}: provenance"),
        dense=parse_curve(tables["dense"], f"{at}.dense", "num_tokens"),
        logits=parse_curve(tables["logits"], f"{at}.logits", "num_logits"),
        prefill_attention=parse_grid(
            tables["prefill_attention"], f"{at}.prefill_attention", "new_tokens", "computed_tokens"
        ),
        decode_attention=parse_grid(
            tables["decode_attention"], f"{at}.decode_attention", "num_decodes", "mean_context"
        ),
        step_overhead_us=_overhead(entries["step_overhead_us"], f"{where}: step_overhead_us"),
        decode_beside_chunks=_beside(tables.get(_BESIDE), f"{at}.{_BESIDE}"),
        attention_launch_us=_overhead(
            entries.get("attention_launch_us", 0), f"{where}: attention_launch_us"
        ),
        max_decode_context_tokens=_most(
            entries.get("max_decode_context_tokens"), f"{where}: max_decode_context_tokens"
        ),
        decode_skew=_shares(tables.get(_SKEW), f"{at}.{_SKEW}"),
        decode_skew_beside_chunks=_shares(tables.get(_SKEW_BESIDE), f"{at}.{_SKEW_BESIDE}"),
        fit=_fit(entries.get("fit"), f"{where}: fit"),
        path=where,
        sha256=sha256,
    )
    _check_launch(profile, where)
    return profile


def _schema_version(document: Any, where: str) -> int:
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise CalibrationError(f'{where}: not a profile; its format must be "{FORMAT}"')
    version = document.get("schema_version")
    if isinstance(version, bool) or version not in SCHEMA_VERSIONS:
        raise CalibrationError(
            f"{where}: schema_version is {version!r}; this release reads"
            f" {', '.join(map(str, SCHEMA_VERSIONS))}:"
            " measure again, or use the release that wrote it"
        )
    return int(version)


def _beside(table: Any, where: str) -> BoxTable | None:
    if table is None:
        return None
    return parse_box(table, where, "new_tokens", "num_decodes", "mean_context")


def _shares(table: Any, where: str) -> ShareTable | None:
    return None if table is None else parse_shares(table, where, "num_decodes")


def _most(value: Any, where: str) -> float | None:
    if value is None:
        return None
    most = number(value, where)
    if most <= 0:
        raise CalibrationError(f"{where}: is {most:g}; it must be above 0")
    return most


def _check_launch(profile: Profile, where: str) -> None:
    """A launch that is longer than a whole entry would make a piece cost less than nothing."""
    for table in (profile.prefill_attention, profile.decode_attention):
        least = min(map(min, table.time_us))
        if profile.attention_launch_us > least:
            raise CalibrationError(
                f"{where}: attention_launch_us: is {profile.attention_launch_us:g}, more than"
                f" {least:g}, the least time of the attention tables"
            )


def _parse_provenance(value: Any, where: str) -> ProfileProvenance:
    entries = check_keys(value, where, required=_REQUIRED_PROVENANCE, optional=_OPTIONAL_PROVENANCE)
    for key, entry in entries.items():
        is_right, kind = _KINDS.get(key, (_is_text, "a text"))
        if not is_right(entry):
            raise CalibrationError(f"{where}.{key}: is {entry!r}; it must be {kind}")
    return ProfileProvenance(**entries)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


_KINDS = {
    "tensor_parallel_size": (_is_size, "a whole number of 1 or more"),
    "expert_parallel": (_is_flag, "true or false"),
}


def _overhead(value: Any, where: str) -> float:
    overhead = number(value, where)
    if overhead < 0:
        raise CalibrationError(f"{where}: is {overhead:g}; it must be 0 or more")
    return overhead


def _fit(value: Any, where: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise CalibrationError(f"{where}: must be an object")
    return value
