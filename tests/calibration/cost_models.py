"""Every cost model, for the contract tests, and a profile whose times are known in closed form."""

from typing import Any

from calibration import (
    ConstantCost,
    CostModel,
    LinearCost,
    ProfileCost,
    RooflineCost,
    load_gpu,
    load_model,
    parse_profile,
)

TOKENS = [1, 16, 256, 2048, 8192]
BATCHES = [1, 8, 64, 256]
CONTEXTS = [1, 256, 4096, 32768]
NEW = [2, 64, 512, 8192]
COMPUTED = [0, 1024, 16384]


def profile_document() -> dict[str, Any]:
    """A profile of straight lines: what interpolation must give back exactly."""
    return {
        "format": "headway-profile",
        "schema_version": 1,
        "provenance": {
            "device": "h100-sxm-80gb",
            "driver": "550.54",
            "torch": "2.8.0",
            "kernel_backend": "flash-attention 3",
            "model": "meta-llama/Llama-3.1-8B",
            "weight_dtype": "bfloat16",
            "kv_cache_dtype": "bfloat16",
            "tensor_parallel_size": 1,
            "date": "2026-01-31",
        },
        "tables": {
            "dense": {"num_tokens": TOKENS, "time_us": [5000.0 + 20 * t for t in TOKENS]},
            "logits": {"num_logits": [1, 64, 1024], "time_us": [301.0, 364.0, 1324.0]},
            "prefill_attention": {
                "new_tokens": NEW,
                "computed_tokens": COMPUTED,
                "time_us": [[10.0 + n + 0.5 * c for c in COMPUTED] for n in NEW],
            },
            "decode_attention": {
                "num_decodes": BATCHES,
                "mean_context": CONTEXTS,
                "time_us": [[40.0 + 0.01 * b * c for c in CONTEXTS] for b in BATCHES],
            },
        },
        "step_overhead_us": 100.0,
    }


def second_document() -> dict[str, Any]:
    """The same in schema version 2: mixed batches of their own, and one launch a step."""
    document = profile_document()
    document["schema_version"] = 2
    document["attention_launch_us"] = 8.0
    document["max_decode_context_tokens"] = 256 * 32768
    document["tables"]["decode_beside_chunks"] = {
        "new_tokens": NEW,
        "num_decodes": BATCHES,
        "mean_context": CONTEXTS,
        "time_us": [[[50.0 + 0.03 * b * c for c in CONTEXTS] for b in BATCHES] for _ in NEW],
    }
    return document


def skewed_document(*, beside: bool = True) -> dict[str, Any]:
    """The same in schema version 3: contexts of unlike length take longer than their mean."""
    document = second_document()
    document["schema_version"] = 3
    if not beside:
        del document["tables"]["decode_beside_chunks"]
    shares = {"num_decodes": [2, 8, 64], "share": [0.5, 0.25, 0.125]}
    document["tables"]["decode_skew"] = shares
    document["tables"]["decode_skew_beside_chunks"] = {**shares, "share": [1.0, 0.5, 0.25]}
    return document


def every_cost_model() -> dict[str, CostModel]:
    """One or more of each kind."""
    llama, h100 = load_model("llama-3.1-8b"), load_gpu("h100")
    return {
        "constant": ConstantCost(0.02),
        "linear": LinearCost(5e-3, 1e-5, 2e-8, 3e-6),
        "roofline": RooflineCost(llama, h100),
        "roofline-fp8-tp8": RooflineCost(
            load_model("qwen3-32b-fp8"), load_gpu("h200"), 8, kv_cache_dtype="fp8", overhead_s=1e-3
        ),
        "roofline-mha-like-l4": RooflineCost(load_model("llama-3.2-1b"), load_gpu("l4")),
        "profile": ProfileCost(parse_profile(profile_document(), "profile.json")),
        "profile-2": ProfileCost(parse_profile(second_document(), "profile.json")),
        "profile-3": ProfileCost(parse_profile(skewed_document(), "profile.json")),
        "profile-3-one-kernel": ProfileCost(
            parse_profile(skewed_document(beside=False), "profile.json")
        ),
    }
