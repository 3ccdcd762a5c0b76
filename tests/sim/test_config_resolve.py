"""From a checked study file to what a run needs: defaults, cross checks, provenance."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import traces
from calibration import CalibrationError
from policies import PolicyError
from sim.config import (
    ClosedLoad,
    OpenLoad,
    ResolvedStudy,
    load_study,
    parse_override,
    resolve_study,
)
from sim.config.yaml_source import parse_yaml
from sim.errors import StudyError
from sim.studies import sample_study_text
from traces import TraceError


def resolved(**changes: Any) -> ResolvedStudy:
    study = {
        "trace": {"sample": True},
        "model": "llama-3.1-8b",
        "hardware": "h100-sxm-80gb",
        **changes,
    }
    return resolve_study(study, "s.yaml")


def refusal(**changes: Any) -> str:
    with pytest.raises(StudyError) as refused:
        resolved(**changes)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def generator(**changes: Any) -> dict[str, Any]:
    lengths = {"median": 100.0}
    base = {"num_requests": 50, "rate_per_s": 2.0}
    return {"generator": {**base, "prompt_tokens": lengths, "output_tokens": lengths, **changes}}


def test_the_shipped_sample_study_resolves() -> None:
    study = resolve_study(parse_yaml(sample_study_text(), "sample"), "sample")
    assert study.name == "sample"
    assert len(study.trace) == len(traces.sample())
    assert not study.warnings


# vLLM 0.29, EngineArgs.get_batch_defaults and _set_default_max_num_seqs_and_batched_tokens_args,
# API server: (GPU, engine keys) -> (max_num_batched_tokens, max_num_seqs).
@pytest.mark.parametrize(
    ("hardware", "engine", "limits"),
    [
        ("h100-sxm-80gb", {}, (8192, 1024)),
        ("a100-sxm-80gb", {}, (2048, 256)),
        ("b200", {}, (16384, 1024)),
        ("h100-sxm-80gb", {"max_num_batched_tokens": 64}, (64, 64)),
        ("h100-sxm-80gb", {"max_num_seqs": 8}, (8192, 8)),
        ("h100-sxm-80gb", {"max_num_seqs": 8, "max_model_len": 100}, (800, 8)),
        (
            "h100-sxm-80gb",
            {"enable_chunked_prefill": False, "max_model_len": 40000},
            (40000, 1024),
        ),
        (
            "h100-sxm-80gb",
            {"enable_chunked_prefill": False, "max_model_len": 4000},
            (8192, 1024),
        ),
    ],
)
def test_batch_limits_default_as_vllms_api_server(
    hardware: str, engine: dict[str, Any], limits: tuple[int, int]
) -> None:
    scheduler = resolved(hardware=hardware, engine=engine).engine.scheduler
    assert (scheduler.max_num_batched_tokens, scheduler.max_num_seqs) == limits


def test_other_engine_defaults_are_vllms() -> None:
    engine = resolved().engine
    scheduler, cache = engine.scheduler, engine.cache
    assert scheduler.max_model_len == 131072  # Llama-3.1-8B's max_position_embeddings
    assert (scheduler.policy, scheduler.watermark) == ("fcfs", 0.0)
    assert scheduler.enable_chunked_prefill and scheduler.scheduler_reserve_full_isl
    assert scheduler.long_prefill_token_threshold == 0
    assert cache.block_size == 16 and cache.enable_prefix_caching
    assert engine.gpu_memory_utilization == 0.92
    assert engine.tensor_parallel_size == 1


def test_every_engine_key_reaches_the_engine() -> None:
    given = {
        "max_model_len": 5000,
        "max_num_seqs": 7,
        "max_num_batched_tokens": 900,
        "max_num_scheduled_tokens": 800,
        "scheduling_policy": "priority",
        "enable_chunked_prefill": True,
        "long_prefill_token_threshold": 300,
        "scheduler_reserve_full_isl": False,
        "watermark": 0.25,
        "async_scheduling": True,
        "block_size": 32,
        "num_gpu_blocks": 777,
        "enable_prefix_caching": False,
        "gpu_memory_utilization": 0.5,
        "kv_cache_dtype": "fp8",
        "tensor_parallel_size": 2,
        "host_overhead_s": 0.001,
        "host_overhead_per_request_s": 0.0001,
    }
    engine = resolved(engine=given).engine
    for key, value in given.items():
        holder = next(
            (part for part in (engine.scheduler, engine.cache, engine) if hasattr(part, key)), None
        )
        name = "policy" if key == "scheduling_policy" else key
        assert getattr(holder or engine.scheduler, name) == value, key
    assert engine.num_gpu_blocks_origin == "as given in the study"


def test_fp8_keys_and_values_double_the_blocks() -> None:
    """A block of fp8 has half the bytes, so as many bytes hold twice as many (or one more)."""
    plain = resolved().engine.cache.num_gpu_blocks
    fp8 = resolved(engine={"kv_cache_dtype": "fp8"}).engine.cache.num_gpu_blocks
    assert fp8 in (2 * plain, 2 * plain + 1)


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        (
            {"max_num_batched_tokens": 64, "max_num_seqs": 128},
            "engine: max_num_batched_tokens (64) is below max_num_seqs (128)",
        ),
        (
            {
                "max_num_batched_tokens": 2048,
                "max_model_len": 4096,
                "enable_chunked_prefill": False,
            },
            "max_num_batched_tokens (2048) is below max_model_len (4096) without chunked prefill",
        ),
        (
            {
                "max_num_batched_tokens": 4096,
                "max_num_scheduled_tokens": 99,
                "max_model_len": 4096,
                "enable_chunked_prefill": False,
            },
            "engine.max_num_scheduled_tokens: 99 is below 4096",
        ),
        (
            {
                "speculative_config": {
                    "method": "mtp",
                    "num_speculative_tokens": 10**11,
                    "acceptance_rate": 1.0,
                }
            },
            "num_speculative_tokens: 100000000000 is wrong; it must be below max_model_len, 131072",
        ),
        (
            {"max_model_len": 200_000},
            "engine.max_model_len: 200000 is more than 131072, the max_position_embeddings",
        ),
    ],
)
def test_what_vllm_refuses_is_refused(engine: dict[str, Any], said: str) -> None:
    assert said in refusal(engine=engine)


def test_a_pool_below_max_model_len_is_warned_of() -> None:
    """vLLM would not start; 99 usable blocks of 16 hold 1584 tokens."""
    study = resolved(engine={"num_gpu_blocks": 100})
    assert any("holds 1584 tokens, less than max_model_len 131072" in w for w in study.warnings)


def test_a_window_that_the_kv_cache_does_not_know_is_warned_of() -> None:
    """gpt-oss-120b: 36 layers, every second one with a window of 128 (its config.json)."""
    (said,) = resolved(model="gpt-oss-120b", hardware="h200").warnings
    assert "18 of the 36 layers of gpt-oss-120b see the last 128 tokens only" in said
    assert "up to 2 times as many tokens in the same memory" in said
    given = resolved(model="gpt-oss-120b", hardware="h200", engine={"num_gpu_blocks": 20_000})
    (said,) = given.warnings
    assert "layers with a window comes on top in vLLM" in said
    assert not any("layers" in w for w in resolved().warnings)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model": "llama-3.1-8bb"}, "model: unknown model .* did you mean 'llama-3.1-8b'"),
        ({"hardware": "H1000"}, "hardware: unknown GPU .* did you mean 'h100"),
        ({"model": "llama-3.1-70b"}, "does not fit"),
        ({"engine": {"tensor_parallel_size": 3}}, "engine: tensor_parallel_size 3 does not divide"),
        ({"engine": {"kv_cache_dtype": "fp4"}}, "unknown kv_cache_dtype 'fp4'"),
        ({"cost_model": {"kind": "profile", "path": "no.json"}}, "cost_model: no.json: can't be"),
        ({"model": "no/such/config.json"}, "no/such/config.json: can't be read"),
    ],
)
def test_what_calibration_refuses_comes_through(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(CalibrationError, match=said):
        resolved(**changes)


def test_an_unknown_scheduler_is_told_the_known_ones() -> None:
    """It must not be taken for a wish for vLLM."""
    assert "did you mean 'vllm'?" in refusal(engine={"scheduler": "vlm"})
    assert "known: headway, vllm" in refusal(engine={"scheduler": "foo"})


@pytest.mark.parametrize(
    "key", ["priority_weights", "tenant_weights", "lora_weights", "priority_map"]
)
def test_an_empty_mapping_says_nothing_and_is_refused(key: str) -> None:
    if key == "lora_weights":
        trace = generator(lora_weights={})
    else:
        trace = {"sample": True, key: {}}
    assert f"{key}: it is empty; give entries, or leave the key out" in refusal(trace=trace)


def test_more_replicas_than_anybody_has_are_refused_at_once() -> None:
    said = "replicas: 1000000 is out of range; it must be at most 10000"
    assert said in refusal(replicas=1_000_000)


def test_an_unknown_router_fails_before_the_trace_is_read() -> None:
    with pytest.raises(PolicyError, match="did you mean 'round-robin'"):
        resolved(router="roundrobin", trace={"path": "/no/such/file.csv"})


@pytest.mark.parametrize(
    ("trace", "said"),
    [
        ({}, "not none"),
        ({"sample": True, "path": "x.csv"}, "not path and sample"),
        ({"sample": True, **generator()}, "not sample and generator"),
        ({"sample": True, "format": "azure"}, "trace.format: it is for a trace file"),
        (
            {"sample": True, "rate_scale": 2.0, "poisson_rate_per_s": 1.0},
            "both set the arrival times",
        ),
    ],
)
def test_a_trace_section_that_contradicts_itself_is_refused(
    trace: dict[str, Any], said: str
) -> None:
    assert said in refusal(trace=trace)


EMPTY_RANGE = {"median": 7.0, "lowest": 10, "highest": 5}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sample": True, "rate_scale": 1e-320}, "trace.rate_scale: factor: 1e-320 is wrong"),
        ({"sample": True, "window_s": [5.0, 1.0]}, "trace.window_s: window: 5.0 to 1.0 is wrong"),
        (
            {"sample": True, "priority_weights": {0: 1e308, 1: 1e308}},
            "trace.priority_weights: .* with a finite sum",
        ),
        (
            {"generator": {"num_requests": 2, "rate_per_s": 1.0, "prompt_tokens": EMPTY_RANGE}},
            "trace.generator: prompt_tokens: lowest: 10 is wrong; it must not pass 5",
        ),
    ],
)
def test_a_refusal_of_a_trace_names_the_key(changes: dict[str, Any], said: str) -> None:
    if "generator" in changes:
        changes["generator"]["output_tokens"] = {"median": 5.0}
    with pytest.raises(TraceError, match=said):
        resolved(trace=changes)


def test_a_trace_that_is_not_there_is_refused() -> None:
    with pytest.raises(TraceError, match=r"missing\.csv"):
        resolved(trace={"path": "/missing.csv"})


def test_transforms_apply_in_their_order() -> None:
    whole = traces.sample()
    study = resolved(trace={"sample": True, "limit": 100, "rate_scale": 2.0})
    assert len(study.trace) == 100
    assert np.array_equal(study.trace.arrival_s, whole.arrival_s[:100] / 2.0)


def test_poisson_arrivals_follow_the_seed_and_keep_the_lengths() -> None:
    trace = {"sample": True, "limit": 2000, "poisson_rate_per_s": 4.0}
    one, again, other = (resolved(seed=seed, trace=trace).trace for seed in (1, 1, 2))
    assert np.array_equal(one.arrival_s, again.arrival_s)
    assert not np.array_equal(one.arrival_s, other.arrival_s)
    assert np.array_equal(one.num_prompt_tokens, other.num_prompt_tokens)
    # 1999 exponential gaps of mean 1/4 s: their mean has a relative deviation of 1/sqrt(1999).
    assert one.arrival_s[-1] / 1999 == pytest.approx(0.25, rel=5 / np.sqrt(1999))


def test_a_generator_makes_what_it_says() -> None:
    trace = resolved(
        seed=3,
        trace=generator(
            prompt_tokens={"median": 640.0},
            output_tokens={"median": 50.0, "sigma": 1.0, "lowest": 10, "highest": 90},
            system_prompts={"share": 1.0, "num_tokens": [160]},
            priority_weights={-1: 1.0, 2: 1.0},
        ),
    ).trace
    assert len(trace) == 50
    assert set(trace.num_prompt_tokens.tolist()) == {800}
    assert trace.num_output_tokens.min() >= 10
    assert trace.num_output_tokens.max() <= 90
    assert set(trace.priority.tolist()) == {-1, 2}


def test_open_load_is_the_default_and_closed_load_is_carried() -> None:
    assert resolved().load == OpenLoad()
    given = {"mode": "closed", "concurrency": 8, "rounds": 3, "ramp_s": 2.0, "client_delay_s": 0.5}
    assert resolved(load=given).load == ClosedLoad(8, 3, 2.0, 0.5)


def test_closed_load_uses_the_whole_trace_if_no_rounds_are_given() -> None:
    trace = {"sample": True, "limit": 103}
    load = resolved(trace=trace, load={"mode": "closed", "concurrency": 10}).load
    assert load == ClosedLoad(10, 11)  # three clients have one request more


def test_a_closed_load_that_needs_more_requests_is_refused() -> None:
    load = {"mode": "closed", "concurrency": 10, "rounds": 11}
    said = refusal(trace={"sample": True, "limit": 103}, load=load)
    assert "10 clients with 11 rounds need 110 requests, the trace has 103" in said


@pytest.mark.parametrize(
    ("section", "kind"),
    [
        ({"kind": "roofline"}, "roofline"),
        ({"kind": "constant", "step_s": 0.01}, "constant"),
        ({"kind": "linear", "base_s": 0.01, "per_token_s": 1e-5}, "linear"),
    ],
)
def test_cost_models_by_kind(section: dict[str, Any], kind: str) -> None:
    study = resolved(cost_model=section)
    assert study.cost_model.provenance.kind == kind
    assert study.config["cost_model"]["kind"] == kind


def test_a_roofline_says_that_real_steps_take_longer() -> None:
    label = resolved(cost_model={"kind": "roofline"}).cost_model.provenance.label
    assert label.startswith("roofline: data-sheet peaks, real steps take longer")


# The saved config: the same study again, or a sentence that says what has changed.


def saved(study: ResolvedStudy, folder: Path) -> Path:
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump(dict(study.config), sort_keys=False))
    return file


def varied_study() -> ResolvedStudy:
    return resolved(
        name="varied",
        seed=5,
        trace=generator(priority_weights={-1: 1.0, 2: 0.5}, cv=2.0),
        engine={"host_overhead_s": 1e-5, "max_model_len": 8192},
        cost_model={"kind": "linear", "base_s": 1e-3, "per_token_s": 1e-7},
        load={"mode": "closed", "concurrency": 4},
        slo={"ttft_s": 0.5},
    )


def test_the_saved_config_gives_the_same_study_again(tmp_path: Path) -> None:
    study = varied_study()
    again = load_study(saved(study, tmp_path))
    assert again.config == study.config
    assert again.trace.content_sha256 == study.trace.content_sha256
    assert (again.engine, again.load, again.slo) == (study.engine, study.load, study.slo)


def test_the_saved_config_states_seed_versions_and_hashes() -> None:
    config = varied_study().config
    assert config["seed"] == 5
    made_of = config["provenance"]
    ours = {"headway", "python", "numpy", "simpy", "core", "scheduler_follows"}
    assert set(made_of["versions"]) == ours
    assert made_of["trace"]["content_sha256"] == varied_study().trace.content_sha256
    assert made_of["engine"]["num_gpu_blocks_origin"]


def trace_file(folder: Path, num_output_tokens: int) -> Path:
    file = folder / "trace.csv"
    file.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        f"2023-11-16 18:15:46.6805900,374,{num_output_tokens}\n"
        "2023-11-16 18:15:50.9951690,396,109\n"
    )
    return file


def test_a_trace_that_changed_since_is_refused(tmp_path: Path) -> None:
    study = resolved(trace={"path": str(trace_file(tmp_path, 44))})
    file = saved(study, tmp_path)
    assert load_study(file).config == study.config
    trace_file(tmp_path, 45)
    with pytest.raises(StudyError, match=r"provenance\.trace\.content_sha256: it was .* is .* now"):
        load_study(file)


def test_a_model_that_changed_since_is_refused(tmp_path: Path) -> None:
    model = tmp_path / "config.json"
    sizes = {
        "model_type": "llama",
        "num_hidden_layers": 4,
        "hidden_size": 512,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "intermediate_size": 1024,
        "vocab_size": 32000,
        "max_position_embeddings": 4096,
        "torch_dtype": "bfloat16",
    }
    model.write_text(json.dumps(sizes))
    study = resolved(model=str(model), cost_model={"kind": "constant", "step_s": 0.01})
    file = saved(study, tmp_path)
    assert load_study(file).config == study.config
    model.write_text(json.dumps({**sizes, "intermediate_size": 2048}))
    with pytest.raises(StudyError, match=r"provenance\.model\.intermediate_size: it was 1024 when"):
        load_study(file)


def test_overrides_make_another_study_of_a_saved_config(tmp_path: Path) -> None:
    file = saved(varied_study(), tmp_path)
    study = load_study(file, [parse_override("seed=6", tmp_path)])
    assert study.seed == 6
    assert study.config["provenance"] != varied_study().config["provenance"]


@pytest.mark.parametrize("section", [{}, {"trace": 3}])
def test_a_broken_provenance_section_is_refused(section: dict[str, Any]) -> None:
    assert "provenance.trace: missing or not a mapping" in refusal(provenance=section)


def test_other_versions_are_no_reason_to_refuse(tmp_path: Path) -> None:
    config = dict(varied_study().config)
    config["provenance"] = {**config["provenance"], "versions": {"headway": "0.0.1"}}
    assert resolve_study(config, "saved").name == "varied"
