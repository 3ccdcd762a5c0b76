"""What a method of speculative decoding asks of the scheduler (vLLM 0.29.0)."""

from __future__ import annotations

from typing import Any

from sim.scheduler.config import SchedulerConfigError

# Drafts that come from no model with a KV cache of its own: nothing is kept for them.
_PLAIN_METHODS = ("ngram", "ngram_gpu", "suffix", "medusa", "mlp_speculator")
# Drafters that read the target model's hidden states: the block before the first token to compute
# must be computed again, so the last prefix hit is dropped.
_HIDDEN_STATE_METHODS = ("eagle", "eagle3", "mtp", "dflash", "dspark")
METHODS = (*_PLAIN_METHODS, "draft_model", *_HIDDEN_STATE_METHODS)
# With other methods vLLM refuses async_scheduling if asked for it, and turns it off if not.
ASYNC_METHODS = ("ngram_gpu", "draft_model", *_HIDDEN_STATE_METHODS)


def drafting_options(
    method: str, num_speculative_tokens: int, *, parallel: bool = False
) -> dict[str, Any]:
    """The fields of `SchedulerConfig` that follow from method and number of drafts a step.

    `parallel` is vLLM's `parallel_drafting`: all drafts of a request from one run of the drafter.
    Raises `SchedulerConfigError` for an unknown method or one that cannot draft in parallel.
    """
    if method not in METHODS:
        raise SchedulerConfigError(
            f"speculative method {method!r} is not modelled; known: {', '.join(METHODS)}"
        )
    if parallel and method in _PLAIN_METHODS:
        raise SchedulerConfigError(f"method {method} has no drafter model to run in parallel")
    return {
        "num_lookahead_tokens": _num_lookahead_tokens(method, num_speculative_tokens),
        "max_num_new_slots_for_drafting": _num_new_slots(method, num_speculative_tokens, parallel),
        "use_eagle": method in _HIDDEN_STATE_METHODS,
    }


def _num_lookahead_tokens(method: str, num_drafts: int) -> int:
    """KV slots kept past the scheduled tokens, for the drafter's own KV cache."""
    if method in _PLAIN_METHODS:
        return 0
    return num_drafts + (method == "dflash")


def _num_new_slots(method: str, num_drafts: int, parallel: bool) -> int:
    """Input rows of the drafter, a request, beyond those of the target model."""
    if method == "dflash":
        return num_drafts
    if parallel:
        return num_drafts if method == "draft_model" else num_drafts - 1
    return 1 if method == "draft_model" else 0
