"""A validated study file to a `ResolvedStudy`: names looked up, files read, defaults filled in."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import policies
from calibration import CalibrationError, ModelSpec, load_gpu, load_model
from sim.config.cost_options import cost_model_warnings, resolve_cost_model, skew_warnings
from sim.config.drafting_options import drafting_warnings
from sim.config.engine_options import resolve_engine
from sim.config.load import parse_study, read_study
from sim.config.overrides import Override
from sim.config.policy_options import stepping_warnings
from sim.config.provenance import provenance, verify
from sim.config.resolved import ClosedLoad, EngineConfig, Load, OpenLoad, ResolvedStudy
from sim.config.schema import (
    ClosedLoadSection,
    OpenLoadSection,
    SessionLoadSection,
    StudyFile,
)
from sim.config.session_options import resolve_session_load
from sim.config.trace_options import resolve_trace
from sim.errors import StudyError
from sim.rng import Streams
from sim.run_result import Slo
from traces import Trace, join_outputs


def load_study(path: Path | str, overrides: Sequence[Override] = ()) -> ResolvedStudy:
    """Read a study file and resolve it; paths in it are relative to its folder.

    Raises:
        StudyError, TraceError, CalibrationError, PolicyError: what is wrong, in one sentence.
    """
    return resolve_study(read_study(Path(path)), str(path), overrides)


def resolve_study(
    values: Mapping[str, Any], source: str, overrides: Sequence[Override] = ()
) -> ResolvedStudy:
    """Resolve a study given as plain values; `source` names it in messages.

    Raises:
        StudyError, TraceError, CalibrationError, PolicyError: what is wrong, in one sentence.
    """
    file = parse_study(values, source, overrides)
    study = _resolved(file)
    if file.provenance is not None and not overrides:
        verify(file.provenance, study.config["provenance"], source)
    return study


def _resolved(file: StudyFile) -> ResolvedStudy:
    with _under("model"):
        model = load_model(file.model)
    with _under("hardware"):
        gpu = load_gpu(file.hardware)
    with _under("engine"):
        engine = resolve_engine(file.engine, model, gpu)
    with _under("cost_model"):
        cost_model = resolve_cost_model(
            file.cost_model,
            model,
            gpu,
            engine.tensor_parallel_size,
            engine.kv_cache_dtype,
            expert_parallel=engine.enable_expert_parallel,
        )
    streams = Streams(file.seed)
    policies.make_router(file.router, streams.rng("router"))  # to fail now, not after loading
    trace = resolve_trace(file.trace, streams)
    if isinstance(file.load, SessionLoadSection) and file.load.outputs_in_prompts:
        trace = join_outputs(trace)
    _check_adapters(trace, engine)
    made_of = provenance(trace, model, gpu, cost_model, engine)
    return ResolvedStudy(
        name=file.name,
        seed=file.seed,
        trace=trace,
        model=model,
        gpu=gpu,
        cost_model=cost_model,
        engine=engine,
        num_replicas=file.replicas,
        router=file.router,
        load=_resolve_load(file.load, trace),
        slo=Slo(**file.slo.model_dump()),
        until_s=file.until_s,
        config={**_as_written(file), "provenance": made_of},
        warnings=(
            *trace.source.warnings,
            *_pool_warnings(engine),
            *_window_warnings(model, engine),
            *drafting_warnings(engine),
            *_adapter_warnings(trace),
            *stepping_warnings(engine),
            *cost_model_warnings(file.cost_model, cost_model, model, gpu),
            *skew_warnings(cost_model, trace, engine.scheduler.max_model_len),
        ),
    )


@contextmanager
def _under(key: str) -> Iterator[None]:
    """A refusal of the calibration says which key of the study it is about."""
    try:
        yield
    except CalibrationError as error:
        raise CalibrationError(f"{key}: {error}") from error


def _check_adapters(trace: Trace, engine: EngineConfig) -> None:
    """vLLM refuses a request for an adapter unless LoRA is on."""
    if trace.lora_id is not None and trace.lora_id.any() and not engine.scheduler.max_loras:
        raise StudyError(
            f"engine.max_loras: the trace has requests for {len(set(trace.lora_id.tolist()) - {0})}"
            " LoRA adapters; say how many may run in one step (vLLM's --max-loras)"
        )


def _adapter_warnings(trace: Trace) -> tuple[str, ...]:
    """Adapters are capped as in vLLM, but their products and their weights are nowhere counted."""
    if trace.lora_id is None or not trace.lora_id.any():
        return ()
    return ("LoRA adapters take no time and no memory here; only max_loras is modelled",)


def _resolve_load(
    section: OpenLoadSection | ClosedLoadSection | SessionLoadSection, trace: Trace
) -> Load:
    if isinstance(section, OpenLoadSection):
        return OpenLoad()
    if isinstance(section, SessionLoadSection):
        return resolve_session_load(section, trace)
    if section.concurrency * (section.rounds or 1) > len(trace):
        raise StudyError(
            f"load: {section.concurrency} clients with {section.rounds or 1} rounds need "
            f"{section.concurrency * (section.rounds or 1)} requests, the trace has {len(trace)}"
        )
    return ClosedLoad(
        concurrency=section.concurrency,
        rounds=section.rounds or -(-len(trace) // section.concurrency),  # the last one uneven
        ramp_s=section.ramp_s,
        client_delay_s=section.client_delay_s,
        client_delay_per_prompt_token_s=section.client_delay_per_prompt_token_s,
    )


def _pool_warnings(engine: EngineConfig) -> tuple[str, ...]:
    """vLLM would not start with a pool below one request of max_model_len; here it is allowed."""
    cache, max_model_len = engine.cache, engine.scheduler.max_model_len
    pool_tokens = cache.num_usable_blocks * cache.block_size
    if pool_tokens >= max_model_len:
        return ()
    return (
        f"the KV pool holds {pool_tokens} tokens, less than max_model_len {max_model_len}: vLLM "
        "would refuse to start; here requests that can never fit are rejected at arrival",
    )


def _window_warnings(model: ModelSpec, engine: EngineConfig) -> tuple[str, ...]:
    """The KV cache here is one of full attention in every layer, however steps are timed.

    vLLM keeps layers with a window in groups of their own: all groups share one pool, whose blocks
    are then of fewer layers, and what lies outside a window goes back to it.
    """
    if not model.num_window_layers:
        return ()
    layers, window_layers = model.num_hidden_layers, model.num_window_layers
    if engine.num_gpu_blocks_is_given:
        effect = "what a request holds for the layers with a window comes on top in vLLM"
    else:
        most = layers / max(1, layers - window_layers)
        effect = (
            f"vLLM holds up to {most:.2g} times as many tokens in the same memory, so waits for "
            "blocks and preemptions are overstated"
        )
    return (
        f"{window_layers} of the {layers} layers of {model.name} see the last {model.window} "
        f"tokens only, but KV blocks and prefix hits are those of full attention: {effect}",
    )


def _as_written(file: StudyFile) -> dict[str, Any]:
    """The study's keys with every fixed default filled in; those left to be derived stay out."""
    return file.model_dump(exclude_none=True, exclude={"provenance"})
