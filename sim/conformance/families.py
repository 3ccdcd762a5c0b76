"""Kinds of workloads that are drawn to try a scheduler, each stressing rules of its own."""

from __future__ import annotations

from dataclasses import dataclass, replace

Range = tuple[int, int]
Choice = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Family:
    """What may be drawn. Ranges include both ends; probabilities are of a case or a request.

    `pool` is the size of the KV pool in the mean of requests that it holds, on top of what the
    largest request needs alone; `tight` the chance that it is no larger than that need allows.
    """

    num_requests: Range = (4, 40)
    prompt_tokens: Range = (1, 300)
    output_tokens: Range = (1, 150)
    short_prompts: float = 0.2  # of a request: at most two blocks
    gap: Choice = (0, 1, 3, 12)  # the mean of iterations between arrivals is one of these
    block_sizes: Choice = (4, 8, 16, 32)
    max_num_seqs: Choice = (2, 4, 8, 16, 64)
    budgets: Choice = (16, 32, 64, 128, 256, 512)
    max_model_lens: Choice = (256, 512, 1024)
    pool: tuple[float, float] = (0.0, 6.0)
    tight: float = 0.25
    ample: float = 0.1
    caching: float = 0.6
    priority: float = 0.4
    reserve: float = 0.5
    is_async: float = 0.0
    unchunked: float = 0.0
    threshold: float = 0.0
    thresholds: Choice = (1, 4, 8, 40, 100)  # beyond the drafts of a step
    watermark: float = 0.0
    scheduled_below_batched: float = 0.0
    shared: float = 0.2  # of a request: its prompt begins as others' do
    turns: float = 0.0  # of a request: its prompt continues another's output
    stops: float = 0.0  # of a request: a stop token before its max_tokens
    aborts: float = 0.0  # of a request
    mid_aborts: float = 0.0  # of a request
    equal_times: float = 0.0  # of a case: arrival times and priorities tie
    past_model_len: float = 0.0  # of a request: max_tokens beyond max_model_len
    loras: Choice = ()  # max_loras is one of these
    drafts: Choice = ()  # num_speculative_tokens is one of these
    methods: tuple[str, ...] = ("ngram",)
    parallel: float = 0.0


_BASE = Family()
_STORM = replace(
    _BASE, tight=0.9, reserve=0.15, pool=(0.0, 1.0), output_tokens=(20, 150), gap=(0, 0, 1)
)
_MIX = replace(
    _BASE,
    caching=0.75,
    priority=0.6,
    threshold=0.3,
    watermark=0.3,
    scheduled_below_batched=0.2,
    shared=0.5,
    turns=0.2,
    stops=0.3,
    aborts=0.15,
    mid_aborts=0.1,
    equal_times=0.2,
    past_model_len=0.05,
)
_SPEC = replace(_BASE, drafts=(1, 2, 3, 5), shared=0.4, caching=0.8)
_HIDDEN = ("eagle", "eagle3", "mtp")
_DRAFTERS = (*_HIDDEN, "draft_model", "dflash", "dspark")

FAMILIES: dict[str, Family] = {
    # The families of the given cases.
    "basic": _BASE,
    "chunked": replace(_BASE, budgets=(32, 64, 128), threshold=1.0, ample=0.6),
    "nochunk": replace(_BASE, unchunked=1.0, max_model_lens=(256, 512)),
    "preempt": replace(_STORM, priority=0.5),
    "prefix": replace(_BASE, caching=1.0, shared=0.9),
    "priority": replace(_BASE, priority=1.0, tight=0.5, reserve=0.3),
    "async": replace(_BASE, is_async=1.0),
    "spec": _SPEC,
    "lora": replace(_BASE, loras=(1, 2, 3)),
    "watermark": replace(_BASE, watermark=1.0, tight=0.5),
    "budget": replace(_BASE, scheduled_below_batched=1.0),
    "maxlen": replace(_BASE, max_model_lens=(96, 128, 200), past_model_len=0.6),
    "abort": replace(_BASE, aborts=0.4),
    "async_priority": replace(_BASE, is_async=1.0, priority=1.0, tight=0.5, reserve=0.3),
    "async_abort": replace(_BASE, is_async=1.0, aborts=0.4),
    "turns": replace(_BASE, caching=1.0, turns=0.5, gap=(3, 12, 20)),
    "eos": replace(_BASE, stops=0.6),
    "async_eos": replace(_BASE, is_async=1.0, stops=0.6),
    "midabort": replace(_BASE, mid_aborts=0.4),
    "ties": replace(_BASE, priority=1.0, equal_times=1.0, tight=0.6, reserve=0.2),
    "spec_short": replace(_SPEC, short_prompts=0.9, budgets=(8, 12, 16, 24), max_num_seqs=(2, 4)),
    "wm_edge": replace(_STORM, watermark=1.0, reserve=0.5),
    "refund_thr": replace(_STORM, priority=1.0, threshold=1.0, budgets=(16, 24)),
    "async_lora": replace(_BASE, is_async=1.0, loras=(1, 2, 3)),
    "wide": replace(
        _BASE,
        num_requests=(120, 180),
        max_num_seqs=(64, 256),
        budgets=(512, 1024),
        max_model_lens=(1024,),
        gap=(0, 1),
    ),
    # Mixtures, and sizes beyond them.
    "mix": _MIX,
    "async_mix": replace(_MIX, is_async=1.0, loras=(1, 2, 3)),
    "lora_mix": replace(_MIX, loras=(1, 2, 3)),
    "async_storm": replace(_STORM, is_async=1.0, priority=0.6, stops=0.3, aborts=0.1, shared=0.5),
    "storm": replace(
        _STORM, num_requests=(20, 80), priority=0.6, stops=0.2, shared=0.5, equal_times=0.3
    ),
    "chunk_wm_prio": replace(
        _BASE, priority=1.0, threshold=1.0, watermark=1.0, tight=0.5, budgets=(32, 64, 128)
    ),
    "budget_mix": replace(_MIX, scheduled_below_batched=1.0),
    "nochunk_mix": replace(_MIX, unchunked=1.0, max_model_lens=(256, 512)),
    "async_midabort": replace(_BASE, is_async=1.0, mid_aborts=0.4, stops=0.2),
    "long": replace(
        _MIX,
        num_requests=(4, 24),
        prompt_tokens=(500, 30000),
        max_model_lens=(32768,),
        budgets=(512, 2048, 8192),
        thresholds=(64, 500, 2000),
        block_sizes=(16, 32, 128),
        short_prompts=0.1,
    ),
    "pool": replace(
        _MIX,
        num_requests=(150, 400),
        max_num_seqs=(128, 256, 1024),
        budgets=(1024, 2048, 8192),
        max_model_lens=(2048,),
        prompt_tokens=(1, 900),
        ample=0.5,
        gap=(0, 0, 1),
    ),
    "spec_mix": replace(_MIX, drafts=(1, 2, 3, 5), loras=(1, 2, 3)),
    "eagle": replace(_SPEC, methods=_HIDDEN, tight=0.4),
    "draft_model": replace(_SPEC, methods=("draft_model",), tight=0.4),
    "parallel": replace(_SPEC, methods=("eagle3", "draft_model"), parallel=1.0),
    "block_draft": replace(_SPEC, methods=("dflash", "dspark")),
    "drafter_mix": replace(_MIX, drafts=(1, 2, 3, 5), methods=_DRAFTERS, parallel=0.3),
    "async_spec": replace(_SPEC, is_async=1.0, methods=_DRAFTERS),
    "async_spec_mix": replace(
        _MIX, is_async=1.0, drafts=(1, 2, 3, 5), methods=_DRAFTERS, parallel=0.3, loras=(1, 2)
    ),
    "async_spec_storm": replace(
        _STORM, is_async=1.0, drafts=(1, 2, 3, 5), methods=_DRAFTERS, priority=0.6, stops=0.3
    ),
    "drafter_storm": replace(
        _STORM,
        num_requests=(4, 16),
        drafts=(3, 5),
        methods=("draft_model", "dflash", "eagle3"),
        parallel=0.5,
        priority=0.8,
        prompt_tokens=(1, 30),
        output_tokens=(30, 120),
        short_prompts=0.0,
        block_sizes=(4,),
        pool=(0.5, 2.0),
        tight=0.0,
        budgets=(8, 12, 14, 20),
        max_num_seqs=(4, 8),
    ),
}
