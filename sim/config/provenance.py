"""What a run was made of, beside what it was told: saved with it, and verified on a rerun.

Rule for a study file that has a `provenance` section (as `config.yaml` of a run folder has): its
`versions` are for the reader, all else must be what the study resolves to now. Overrides make
another study of it, so then nothing is compared.
"""

import platform
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from calibration import CostModel, GpuSpec, ModelSpec
from sim.config.resolved import EngineConfig
from sim.errors import StudyError
from sim.scheduler.config import VLLM_VERSION
from traces import Trace

_VERIFIED = ("trace", "model", "hardware", "cost_model", "engine")
_ADVICE = "delete the provenance section to run it as it is now"


def provenance(
    trace: Trace, model: ModelSpec, gpu: GpuSpec, cost_model: CostModel, engine: EngineConfig
) -> dict[str, Any]:
    """Return the section as plain values."""
    cost = cost_model.provenance
    return {
        "versions": {
            "headway": version("headway"),
            "python": platform.python_version(),
            "numpy": version("numpy"),
            "simpy": version("simpy"),
            "core": engine.core,
            "scheduler_follows": f"vLLM {VLLM_VERSION}",
        },
        "trace": {
            "num_requests": len(trace),
            "content_sha256": trace.content_sha256,
            "file_sha256": trace.source.sha256,
        },
        "model": asdict(model),
        "hardware": asdict(gpu),
        "cost_model": {
            "label": cost.label,
            "calibrated": cost.calibrated,
            "details": dict(cost.details),
        },
        "engine": {
            "max_model_len": engine.scheduler.max_model_len,
            "max_num_batched_tokens": engine.scheduler.max_num_batched_tokens,
            "max_num_seqs": engine.scheduler.max_num_seqs,
            "num_gpu_blocks": engine.cache.num_gpu_blocks,
            "num_gpu_blocks_origin": engine.num_gpu_blocks_origin,
        },
    }


def verify(saved: Mapping[str, object], now: Mapping[str, Any], source: str) -> None:
    """Check a saved section against the one that the study resolves to now.

    Raises:
        StudyError: something is not what it was; the message names it and both values.
    """
    for section in _VERIFIED:
        kept = saved.get(section)
        if not isinstance(kept, Mapping):
            raise StudyError(f"{source}: provenance.{section}: missing or not a mapping; {_ADVICE}")
        _verify_section(section, kept, now[section], source)


def _verify_section(
    section: str, kept: Mapping[str, object], now: Mapping[str, Any], source: str
) -> None:
    for key, value in now.items():
        if kept.get(key) != value:
            raise StudyError(
                f"{source}: provenance.{section}.{key}: it was {_short(kept.get(key))} when "
                f"this was saved and is {_short(value)} now; {_ADVICE}"
            )


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
