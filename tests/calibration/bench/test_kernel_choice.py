"""Kernels with block tables, and the choice among them."""

import time
from functools import partial

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install -e '.[bench]'")

from calibration import CalibrationError, ModelSpec  # noqa: E402
from calibration.bench.attention import GatherAttention, PagedKVCache  # noqa: E402
from calibration.bench.device import open_device  # noqa: E402
from calibration.bench.flashinfer_kernel import FlashInferAttention, page_lists  # noqa: E402
from calibration.bench.kernel_choice import choose_attention, named, quickest  # noqa: E402
from calibration.bench.kernel_report import Tried, describe_choice, kernel_lines  # noqa: E402
from calibration.bench.kernel_trial import TRIALS, Trial  # noqa: E402
from calibration.bench.paged_kernels import Missing, installed_kernels  # noqa: E402
from calibration.bench.step_batch import Piece, pack  # noqa: E402
from calibration.bench.table_kernels import (  # noqa: E402
    Setting,
    TableAttention,
    flash_2_kernel,
    flash_3_kernel,
    torch_kernel,
    vllm_kernel,
    vllm_scheduler,
)
from tests.calibration.bench import recorded_signatures as recorded  # noqa: E402

BLOCK = 16
MODEL = ModelSpec(
    name="small",
    num_hidden_layers=1,
    hidden_size=256,
    num_attention_heads=8,
    num_key_value_heads=2,
    head_dim=32,
    intermediate_size=512,
    vocab_size=1000,
    max_position_embeddings=4096,
    dtype="float32",
)
DEVICE = open_device("cpu")
SETTING = Setting(DEVICE.torch_device, MODEL, torch.float32, BLOCK)
LARGE = Setting(DEVICE.torch_device, MODEL, torch.float32, 256)


def by_table(query, keys, values, plan):
    """What the kernels compute, from the plan alone."""
    assert plan.context_starts.diff().tolist() == plan.contexts.tolist()
    assert plan.longest_new == max(plan.starts.diff()).item()
    assert plan.longest_context == max(plan.contexts).item()
    return recorded.by_table(query, keys, values, plan.starts, plan.contexts, plan.table)


class Slow(TableAttention):
    def run(self, *arguments):
        time.sleep(0.3)
        return super().run(*arguments)


def wrong_scale(query, keys, values, plan):
    return by_table(query, keys, values, plan) * 0.9


def without_the_newest(query, keys, values, plan):
    """Leaves out one token of contexts of more than a thousand."""
    contexts = torch.where(plan.contexts > 1000, plan.contexts - 1, plan.contexts)
    return recorded.by_table(query, keys, values, plan.starts, contexts, plan.table)


def split_wrongly(query, keys, values, plan):
    """Right for mixed batches; of decodes alone only the first is ever written."""
    out = by_table(query, keys, values, plan)
    if plan.longest_new == 1:
        out[1:] = float("nan")
    return out


def unsupported(query, keys, values, plan):
    raise RuntimeError("no kernel image is available for execution on the device")


def with_sums(query, keys, values, plan):
    return by_table(query, keys, values, plan), plan.contexts


def table(name, kernel, kind=TableAttention):
    return kind(DEVICE.torch_device, name, kernel)


def best_of(*kernels):
    return quickest(kernels, DEVICE, SETTING)


@pytest.fixture(scope="module")
def trials():
    """Trials by block size, with the results of gathered blocks."""
    made = {}
    gathered = GatherAttention(DEVICE.torch_device, torch.float32)
    for setting in (SETTING, LARGE):
        trial = Trial(setting)
        made[setting.block_size] = trial, [trial.run(gathered, batch) for batch in TRIALS]
    return made


def differences(trials, kernel, block_size=BLOCK):
    trial, expected = trials[block_size]
    return [
        trial.difference(trial.run(kernel, batch), right)
        for batch, right in zip(TRIALS, expected, strict=True)
    ]


def test_the_quickest_kernel_that_is_right_is_taken_and_the_others_are_named() -> None:
    kernels = (
        table("scale", wrong_scale),
        table("slow", by_table, Slow),
        table("broken", unsupported),
        table("two", with_sums),
        Missing("absent", "ModuleNotFoundError: No module named 'absent'"),
        table("right", by_table),
    )
    choice = best_of(*kernels)
    assert choice.kernel.name == "right"
    problems = {one.name: one.problem for one in choice.tried}
    assert problems["scale"] == "wrong for a mixed batch: off by 10.0% in some head"
    assert problems["broken"].startswith("RuntimeError: no kernel image is available")
    assert "AttributeError" in problems["two"] and "No module" in problems["absent"]
    times = {one.name: one.time_s for one in choice.tried if one.time_s is not None}
    assert set(times) == {"slow", "right"} and times["slow"] > 0.6
    report = describe_choice(choice.kernel.name, choice.tried)
    assert set(report["layer_us"]) == {"slow", "right"}
    assert len(report["passed_over"]) == 4
    assert len(kernel_lines(report)) == 6 and "WARNING" not in str(kernel_lines(report))


def test_without_a_right_kernel_blocks_are_gathered_and_it_is_said() -> None:
    choice = best_of(table("scale", wrong_scale), table("broken", unsupported))
    assert "gathered" in choice.kernel.name
    assert "gathered" in best_of().kernel.name
    lines = kernel_lines(describe_choice(choice.kernel.name, choice.tried))
    assert "WARNING" in lines[-1] and "--block-size 256" in lines[-1]
    assert "gathered" in choose_attention(DEVICE, SETTING).kernel.name
    assert kernel_lines(None) == []


@pytest.mark.parametrize("kernel", [without_the_newest, split_wrongly, wrong_scale])
def test_a_kernel_that_is_wrong_for_one_kind_of_batch_is_wrong(trials, kernel) -> None:
    assert any(differences(trials, table("wrong", kernel)))


def test_rounding_to_the_models_format_is_not_wrong(trials) -> None:
    """Queries, keys, values and results in bfloat16, as on a GPU."""

    def rounded(query, keys, values, plan):
        tensors = (t.bfloat16().float() for t in (query, keys, values))
        return by_table(*tensors, plan).bfloat16().float()

    assert not any(differences(trials, table("rounded", rounded)))


def test_a_kernel_is_found_by_its_name_or_a_part_of_it() -> None:
    kernels = [
        table("flash 3, scheduled ahead", by_table),
        table("flash 3", by_table),
        table("other", unsupported),
        Missing("absent", "not installed"),
    ]
    find = partial(named, kernels, device=DEVICE, setting=SETTING)
    assert [one.name for one in find("flash 3").tried] == ["flash 3"]
    assert find("ahead").kernel.name == "flash 3, scheduled ahead"
    with pytest.raises(CalibrationError, match="'other' does not work here: other: RuntimeError"):
        find("other")
    with pytest.raises(CalibrationError, match="no attention kernel 'x' here; installed: flash 3"):
        find("x")


def test_packages_that_are_not_installed_are_named() -> None:
    """Without a GPU there is at most torch's own."""
    found = list(installed_kernels(SETTING))
    missing = {one.name: one.problem for one in found if isinstance(one, Missing)}
    assert {"flash_attn_interface", "flash_attn"} <= set(missing)
    assert "No module named 'flash_attn_interface'" in missing["flash_attn_interface"]
    assert str(Tried("flash_attn", None, "x")) == "flash_attn: x"


VLLM = recorded.vllm_flash_attn_varlen_func
KERNELS = {
    "vllm 2": (vllm_kernel(VLLM, 2), None),
    "vllm 3": (vllm_kernel(VLLM, 3), None),
    "vllm 3 ahead": (
        vllm_kernel(VLLM, 3),
        vllm_scheduler(recorded.vllm_get_scheduler_metadata, SETTING),
    ),
    "flash 3": (flash_3_kernel(recorded.flash_3_with_kvcache), None),
}


@pytest.mark.parametrize("name", KERNELS)
def test_arguments_are_those_of_the_packages(trials, name) -> None:
    """By the recorded signatures each kernel gives what gathered blocks give."""
    kernel, scheduler = KERNELS[name]
    attention = TableAttention(DEVICE.torch_device, name, kernel, scheduler)
    assert not any(differences(trials, attention))
    batch = pack([Piece(np.zeros(2, np.int64), 0, np.array([1]))], BLOCK)
    assert (attention.plan(batch).schedule is None) == (scheduler is None)


def test_flash_2_takes_large_blocks_alone(trials) -> None:
    kernel = table("flash 2", flash_2_kernel(recorded.flash_2_varlen_func))
    assert not any(differences(trials, kernel, 256))
    with pytest.raises(RuntimeError, match="divisible by 256"):
        differences(trials, kernel)


@pytest.mark.parametrize("takes_splits", [True, False])
def test_torchs_kernel_is_told_not_to_split_where_it_can_be_told(trials, takes_splits) -> None:
    kernel = torch_kernel(partial(recorded.torch_varlen_attn, takes_splits=takes_splits))
    assert not any(differences(trials, table("torch", kernel), 256))


def test_flashinfer_plans_once_for_all_layers(trials) -> None:
    assert not any(differences(trials, FlashInferAttention(recorded.FlashInfer(), SETTING)))


def test_page_lists_hold_the_blocks_of_every_piece() -> None:
    cache = PagedKVCache(MODEL, 8, BLOCK, DEVICE.torch_device, torch.float32)
    one = Piece(np.zeros(1, np.int64), BLOCK - 1, np.array([5, 2]))  # a block more than it needs
    two = Piece(np.zeros(3, np.int64), BLOCK, np.array([7, 0]))
    firsts, blocks, in_last = page_lists(pack([one, two], BLOCK), cache.block_size)
    assert (firsts, blocks, in_last) == ([0, 1, 3], [5, 7, 0], [BLOCK, 3])
