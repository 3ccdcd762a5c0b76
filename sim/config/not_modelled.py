"""vLLM's options that a study can't set: what to say, lest a look-alike is taken for them."""

_API_SERVER = "it is the API server's, in front of the scheduler"
_TEXT = "requests are text in, text out"
_FULL_ATTENTION = "every layer has full attention"
_TRANSFER = "no KV leaves a replica's pool, and none comes from elsewhere"
_CONTEXT_PARALLEL = "a prompt is computed by one group of GPUs; tensor_parallel_size is its size"

NOT_MODELLED = {
    "pipeline_parallel_size": "layers are not split over stages; tensor_parallel_size splits each "
    "layer, which takes other times",
    "data_parallel_size": "ranks do not step together; `replicas` are engines on their own",
    "decode_context_parallel_size": _CONTEXT_PARALLEL,
    "prefill_context_parallel_size": _CONTEXT_PARALLEL,
    "prefill_schedule_interval": "it needs data-parallel ranks that step together",
    "max_num_queued_reqs": _API_SERVER,
    "max_num_queued_tokens": _API_SERVER,
    "stream_interval": "a token is seen when the step that made it ends",
    "runner_type": _TEXT,
    "is_multimodal_model": _TEXT,
    "max_num_encoder_input_tokens": _TEXT,
    "encoder_cache_size": _TEXT,
    "disable_chunked_mm_input": _TEXT,
    "disable_hybrid_kv_cache_manager": _FULL_ATTENTION,
    "sliding_window": _FULL_ATTENTION,
    "use_replayssm": _FULL_ATTENTION,
    "replayssm_buffer_len": _FULL_ATTENTION,
    "kv_cache_dtype_skip_layers": _FULL_ATTENTION,
    "kv_sharing_fast_prefill": _FULL_ATTENTION,
    "prefix_match_unit": "blocks match whole",
    "prefix_cache_retention_interval": "every block is kept until its place is needed",
    "kv_cache_memory_bytes": "give num_gpu_blocks, as vLLM's log states it",
    "kv_offloading_size": _TRANSFER,
    "kv_offloading_backend": _TRANSFER,
    "kv_transfer_config": _TRANSFER,
    "ec_transfer_config": _TRANSFER,
    "kv_events_config": _TRANSFER,
    "swap_space": "vLLM V1 recomputes what it preempts, and swaps nothing",
    "cpu_offload_gb": "weights lie on the GPU",
    "num_speculative_tokens_per_batch_size": "the number of drafts is one for all batches",
    "enable_adaptive_verification": "every draft is verified",
    "enforce_eager": "the time to launch kernels is the host's: give it as host_overhead_s",
}
"""Why not, or what to take in its place, by the option's name."""

OTHER_NAMES = {
    "num_gpu_blocks_override": "num_gpu_blocks",
    "enable_lora": "max_loras",
    "scheduler_cls": "scheduler",
    "policy": "scheduling_policy",
}
"""Options of vLLM that have another name in a study."""


def said_of(option: str) -> str | None:
    """What to say of an option of vLLM that a study has not, or not by this name; None: no such."""
    if option in NOT_MODELLED:
        return f"vLLM's option, but not modelled: {NOT_MODELLED[option]}"
    if option in OTHER_NAMES:
        return f"vLLM's option; here it is {OTHER_NAMES[option]!r}"
    return None
