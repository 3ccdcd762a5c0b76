"""The shipped profiles: all of them can be used, none is faster than its GPU, and few are large."""

from dataclasses import replace
from importlib.resources import files
from itertools import product
from pathlib import Path

import pytest

from calibration import (
    ProfileCost,
    RooflineCost,
    StepShape,
    decode_shape,
    load_gpu,
    load_model,
    shipped_profile,
    shipped_profile_names,
)
from calibration.kernels import load_kernel_tables
from calibration.kernels.build import build_profile
from calibration.kernels.shipping import thinned
from calibration.profile_archive import write_archive
from calibration.profile_match import check_match, check_plausible

GPUS = ("a100", "b200", "h100", "h200", "l40s")
FOLDER = files("calibration").joinpath("data", "profiles")


def split(member: str) -> tuple[str, str, str, int, bool]:
    """`model.weights.kv-format.tpN`, `.ep` with expert parallel; names of models have dots too."""
    rest, tp = member.rsplit(".tp", 1)
    rest, kv = rest.rsplit(".kv-", 1)
    model, weights = rest.rsplit(".", 1)
    return model, weights, kv, int(tp.removesuffix(".ep")), tp.endswith(".ep")


@pytest.mark.parametrize("gpu_name", GPUS)
def test_every_shipped_profile_is_found_and_slower_than_the_data_sheet(gpu_name: str) -> None:
    gpu = load_gpu(gpu_name)
    members = shipped_profile_names(gpu.name)
    assert len(members) >= 36
    for member in members[:: 5 if gpu_name == "a100" else 17]:
        model_name, weights, kv, tp, is_spread = split(member)
        model = load_model(model_name, weights if weights in ("fp8", "nvfp4") else None)
        assert model.weight_dtype == weights
        cost = shipped_profile(model, gpu, tp, kv, expert_parallel=is_spread)
        assert isinstance(cost, ProfileCost)
        check_match(cost.profile, model=model, gpu=gpu, tensor_parallel_size=tp, kv_cache_dtype=kv)
        check_plausible(cost.profile, model, gpu)
        if model.experts is not None:  # there is no roofline of a mixture
            assert cost.step_time_s(decode_shape(64, 64 * 2048)) < 0.2
            continue
        bound = RooflineCost(model, gpu, tp, kv_cache_dtype=kv)
        for shape in (
            decode_shape(1, 1024),
            decode_shape(64, 64 * 2048),
            StepShape(4096, 1, 0, 0, ((4096, 0),)),
        ):
            assert cost.out_of_range(shape) is None
            ratio = cost.step_time_s(shape) / bound.step_time_s(shape)
            assert ratio > 0.95
            if tp == 1 and model.num_parameters > 7e9:  # else launches and links may rule
                assert ratio < 4


@pytest.mark.parametrize("gpu_name", GPUS)
def test_a_few_tokens_after_a_long_context_are_no_quicker_than_the_data_sheet(
    gpu_name: str,
) -> None:
    """Most of a prompt found in the cache: the chunk is small, and reads all that was found."""
    gpu = load_gpu(gpu_name)
    num_compared = 0
    for member in shipped_profile_names(gpu.name)[::9]:
        model_name, weights, kv, tp, _ = split(member)
        model = load_model(model_name, weights if weights in ("fp8", "nvfp4") else None)
        cost = shipped_profile(model, gpu, tp, kv)
        if model.experts is not None or cost is None:
            continue
        bound = RooflineCost(model, gpu, tp, kv_cache_dtype=kv)
        for num_new, num_cached in product((2, 16, 64), (1_000, 8_000, 30_000)):
            shape = StepShape(num_new, 1, 0, 0, ((num_new, num_cached),))
            if cost.out_of_range(shape) is None:
                assert cost.step_time_s(shape) > 0.95 * bound.step_time_s(shape), (member, shape)
                num_compared += 1
    assert num_compared >= 9


def test_the_usual_pairs_are_there() -> None:
    for gpu in ("h100", "h200", "b200"):
        for model, tp in (("llama-3.1-8b", 1), ("llama-3.1-70b-fp8", 4), ("qwen3-32b", 2)):
            assert shipped_profile(load_model(model), load_gpu(gpu), tp) is not None
    assert shipped_profile(load_model("llama-3.1-8b"), load_gpu("a100")) is not None
    assert shipped_profile(load_model("llama-3.1-8b"), load_gpu("l40s")) is not None


def test_a_profile_is_used_for_nothing_else() -> None:
    model, h100 = load_model("llama-3.1-8b"), load_gpu("h100")
    assert shipped_profile(model, load_gpu("l4")) is None
    assert shipped_profile(model, h100, 16) is None
    assert shipped_profile(load_model("llama-3.1-8b", "awq"), h100) is None
    assert shipped_profile(replace(model, num_hidden_layers=16), h100) is None
    assert shipped_profile(replace(model, name="my-own"), h100) is None


def test_more_gpus_decode_faster() -> None:
    model, h100 = load_model("qwen3-32b"), load_gpu("h100")
    costs = [shipped_profile(model, h100, tp) for tp in (1, 2, 4, 8)]
    times = [cost.step_time_s(decode_shape(32, 32 * 2048)) for cost in costs if cost is not None]
    assert len(times) >= 3
    assert times == sorted(times, reverse=True)


def test_they_are_small_and_say_where_they_are_from() -> None:
    sizes = [file.read_bytes() for file in FOLDER.iterdir() if file.name.endswith(".json.xz")]
    assert len(sizes) == len(GPUS)
    assert sum(map(len, sizes)) < 400_000
    notice = (FOLDER / "NOTICE").read_text()
    assert "aiconfigurator-core" in notice
    assert "Apache License, Version 2.0" in notice
    cost = shipped_profile(load_model("llama-3.1-8b"), load_gpu("h100"))
    assert cost is not None
    assert "aiconfigurator-core" in cost.provenance.details["source"]
    assert cost.provenance.details["fit"]["dense"]["mean"] > 0


def test_the_script_builds_what_is_shipped(shared_dir: Path, tmp_path: Path) -> None:
    tables = load_kernel_tables(shared_dir / "data" / "kernels", "h100_sxm")
    model = load_model("qwen3-32b")
    profile = thinned(build_profile(tables, model, tensor_parallel_size=2))
    shipped = shipped_profile(model, load_gpu("h100"), 2)
    assert shipped is not None
    assert profile.to_json()["tables"] == shipped.profile.to_json()["tables"]
    first, second = tmp_path / "1.xz", tmp_path / "2.xz"
    assert write_archive([profile], first) == write_archive([profile], second)
    assert first.read_bytes() == second.read_bytes()
