"""Kernels with block tables, and the choice among them."""

import time

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install -e '.[bench]'")

from calibration import ModelSpec, load_model  # noqa: E402
from calibration.bench.attention import PagedKVCache  # noqa: E402
from calibration.bench.device import open_device  # noqa: E402
from calibration.bench.kernel_choice import choose_attention, quickest  # noqa: E402
from calibration.bench.paged_kernels import TableAttention, page_lists  # noqa: E402
from calibration.bench.step_batch import Piece, pack  # noqa: E402

BLOCK = 16
MODEL: ModelSpec = load_model("llama-3.2-1b")
DTYPE = torch.float32
DEVICE = open_device("cpu")


def by_table(query, keys, values, plan):
    """What the kernels compute, row by row, from the plan alone."""
    out = torch.empty_like(query)
    repeats = query.shape[1] // keys.shape[2]
    for piece in range(len(plan.contexts)):
        first, end = plan.starts[piece].item(), plan.starts[piece + 1].item()
        context = plan.contexts[piece].item()
        assert context == plan.context_starts[piece + 1].item() - plan.context_starts[piece].item()
        tokens = [cache[plan.table[piece].long()].flatten(0, 1) for cache in (keys, values)]
        for row in range(first, end):
            seen = context - (end - 1 - row)
            k, v = (t[:seen].repeat_interleave(repeats, dim=1) for t in tokens)
            scores = torch.einsum("hd,thd->ht", query[row], k) / query.shape[2] ** 0.5
            out[row] = torch.einsum("ht,thd->hd", scores.softmax(-1), v)
    assert plan.longest_new == max(plan.starts.diff()).item()
    assert plan.longest_context == max(plan.contexts).item()
    return out


class Slow(TableAttention):
    def run(self, *arguments):
        time.sleep(0.2)
        return super().run(*arguments)


def wrong_mask(query, keys, values, plan):
    """Lets the rows of a chunk see nothing but the first token of their context."""
    return by_table(query, keys, values, plan) * 0.9


def unsupported(query, keys, values, plan):
    raise RuntimeError("no kernel image is available for execution on the device")


def table(name, kernel, kind=TableAttention):
    return kind(DEVICE.torch_device, name, kernel)


def best_of(*kernels):
    return quickest(kernels, DEVICE, MODEL, DTYPE, BLOCK).name


def test_the_quickest_kernel_that_is_right_is_taken() -> None:
    wrong, broken = table("wrong", wrong_mask), table("broken", unsupported)
    right, slow = table("right", by_table), table("slow", by_table, Slow)
    assert best_of(wrong, slow, broken, right) == "right"
    assert best_of(right, slow) == "right"
    assert best_of(wrong, slow) == "slow"


def test_without_a_right_kernel_blocks_are_gathered() -> None:
    assert "gathered" in best_of(table("wrong", wrong_mask), table("broken", unsupported))
    assert "gathered" in best_of()
    assert "gathered" in choose_attention(DEVICE, MODEL, DTYPE, BLOCK).name


def test_page_lists_hold_the_blocks_of_every_piece() -> None:
    cache = PagedKVCache(MODEL, 8, BLOCK, DEVICE.torch_device, DTYPE)
    one = Piece(np.zeros(1, np.int64), BLOCK - 1, np.array([5, 2]))  # a block more than it needs
    two = Piece(np.zeros(3, np.int64), BLOCK, np.array([7, 0]))
    firsts, blocks, in_last = page_lists(pack([one, two], BLOCK), cache.block_size)
    assert (firsts, blocks, in_last) == ([0, 1, 3], [5, 7, 0], [BLOCK, 3])
