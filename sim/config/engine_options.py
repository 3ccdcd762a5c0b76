"""The engine section to an `EngineConfig`: defaults as vLLM's API server takes them."""

from calibration import (
    GpuSpec,
    KvCapacity,
    ModelSpec,
    compute_num_gpu_blocks,
    serving_defaults,
)
from sim.config.core_options import resolve_core
from sim.config.drafting_options import (
    goes_async,
    resolve_drafting,
    scheduler_drafting_options,
)
from sim.config.messages import nearest
from sim.config.policy_options import resolve_queue_policy, vllm_policy
from sim.config.resolved import GIVEN, OUR_SCHEDULER, SCHEDULERS, EngineConfig
from sim.config.schema import EngineSection
from sim.errors import StudyError
from sim.scheduler.config import CacheConfig, SchedulerConfig, SchedulerConfigError


def resolve_engine(section: EngineSection, model: ModelSpec, gpu: GpuSpec) -> EngineConfig:
    """Fill in what the section leaves open, and check the whole.

    Raises:
        StudyError: options that exclude each other, as vLLM refuses them.
        CalibrationError: the model does not fit the GPU, or can't be split over the GPUs.
    """
    model.check_tensor_parallel(
        section.tensor_parallel_size, expert_parallel=section.enable_expert_parallel
    )
    _check_scheduler(section.scheduler)
    if section.explain and section.scheduler != OUR_SCHEDULER:
        raise StudyError(
            f"engine.explain: the scheduler {section.scheduler!r} does not say why it admits "
            "nobody; only our own does"
        )
    try:
        scheduler = _scheduler_config(section, model, gpu)
        capacity = _kv_capacity(section, scheduler, model, gpu)
        cache = CacheConfig(
            num_gpu_blocks=capacity.num_gpu_blocks,
            block_size=section.block_size,
            enable_prefix_caching=section.enable_prefix_caching,
        )
    except SchedulerConfigError as error:
        raise StudyError(f"engine: {error}") from error
    return EngineConfig(
        scheduler=scheduler,
        cache=cache,
        num_gpu_blocks_origin=capacity.origin,
        gpu_memory_utilization=section.gpu_memory_utilization,
        kv_cache_dtype=section.kv_cache_dtype,
        tensor_parallel_size=section.tensor_parallel_size,
        enable_expert_parallel=section.enable_expert_parallel,
        host_overhead_s=section.host_overhead_s,
        host_overhead_per_request_s=section.host_overhead_per_request_s,
        drafting=resolve_drafting(section.speculative_config),
        leap=section.leap and section.scheduler == OUR_SCHEDULER,
        scheduler_class=section.scheduler,
        queue_policy=resolve_queue_policy(section),
        policy_options=section.policy_options,
        predicted_length_error=section.predicted_length_error,
        explain=section.explain,
        core=resolve_core(section),
    )


def _check_scheduler(name: str) -> None:
    if name not in SCHEDULERS and ":" not in name:
        raise StudyError(
            f"engine.scheduler: {name!r} is unknown; {nearest(name, SCHEDULERS)} (or a class of "
            "your own as 'module:Class')"
        )


def _scheduler_config(section: EngineSection, model: ModelSpec, gpu: GpuSpec) -> SchedulerConfig:
    max_model_len = _max_model_len(section, model)
    max_num_batched_tokens, max_num_seqs = _batch_limits(section, max_model_len, gpu)
    _check_whole_prompts_fit(section, max_model_len)
    _check_drafts_fit(section, max_model_len)
    return SchedulerConfig(
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        max_num_scheduled_tokens=section.max_num_scheduled_tokens,
        max_model_len=max_model_len,
        policy=vllm_policy(section),
        enable_chunked_prefill=section.enable_chunked_prefill,
        long_prefill_token_threshold=section.long_prefill_token_threshold,
        scheduler_reserve_full_isl=section.scheduler_reserve_full_isl,
        watermark=section.watermark,
        async_scheduling=goes_async(section),
        max_loras=section.max_loras,
        **scheduler_drafting_options(section),
    )


def _check_whole_prompts_fit(section: EngineSection, max_model_len: int) -> None:
    """Without chunked prefill a prompt above the budget would wait for ever, in vLLM too."""
    budget = section.max_num_scheduled_tokens
    piece = min(section.long_prefill_token_threshold or max_model_len, max_model_len)
    if not section.enable_chunked_prefill and budget is not None and budget < piece:
        raise StudyError(
            f"engine.max_num_scheduled_tokens: {budget} is below {piece}, the longest piece of a "
            "prompt without chunked prefill, which could never be scheduled; raise it, lower "
            "max_model_len or enable chunked prefill"
        )


def _check_drafts_fit(section: EngineSection, max_model_len: int) -> None:
    drafts = section.speculative_config
    if drafts is not None and drafts.num_speculative_tokens >= max_model_len:
        raise StudyError(
            f"engine.speculative_config.num_speculative_tokens: {drafts.num_speculative_tokens} "
            f"is wrong; it must be below max_model_len, {max_model_len}"
        )


def _max_model_len(section: EngineSection, model: ModelSpec) -> int:
    """The model's own limit unless a shorter one is given; vLLM refuses a longer one."""
    limit = model.max_position_embeddings
    if section.max_model_len is None:
        return limit
    if section.max_model_len > limit:
        raise StudyError(
            f"engine.max_model_len: {section.max_model_len} is more than {limit}, "
            f"the max_position_embeddings of {model.name}"
        )
    return section.max_model_len


def _batch_limits(section: EngineSection, max_model_len: int, gpu: GpuSpec) -> tuple[int, int]:
    """(max_num_batched_tokens, max_num_seqs) by the rules of vLLM 0.29's EngineArgs.

    A token budget that is not given grows to `max_model_len` without chunked prefill and never
    exceeds max_num_seqs * max_model_len; a max_num_seqs that is not given never exceeds the budget.
    """
    default_tokens, default_seqs = serving_defaults(gpu)
    num_seqs = section.max_num_seqs or default_seqs
    num_tokens = section.max_num_batched_tokens
    if num_tokens is None:
        if not section.enable_chunked_prefill:
            default_tokens = max(default_tokens, max_model_len)
        num_tokens = min(default_tokens, num_seqs * max_model_len)
    if section.max_num_seqs is None:
        num_seqs = min(num_seqs, num_tokens)
    return num_tokens, num_seqs


def _kv_capacity(
    section: EngineSection, scheduler: SchedulerConfig, model: ModelSpec, gpu: GpuSpec
) -> KvCapacity:
    if section.num_gpu_blocks is not None:
        return KvCapacity(section.num_gpu_blocks, GIVEN)
    return compute_num_gpu_blocks(
        model,
        gpu,
        gpu_memory_utilization=section.gpu_memory_utilization,
        kv_cache_dtype=section.kv_cache_dtype,
        tensor_parallel_size=section.tensor_parallel_size,
        block_size=section.block_size,
        max_num_batched_tokens=scheduler.max_num_batched_tokens,
        max_num_seqs=scheduler.max_num_seqs,
    )
