"""Batches on which attention kernels are held against gathered blocks, and timed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch

from calibration.bench.attention import PagedAttention, PagedKVCache
from calibration.bench.step_batch import Piece, StepBatch, pack
from calibration.bench.table_kernels import Setting

Sizes = tuple[tuple[int, int], ...]
"""(new tokens, tokens computed before) of the pieces, decodes first."""


class TrialBatch(NamedTuple):
    """A batch and what it is called."""

    name: str
    sizes: Sizes


_DECODES: Sizes = ((1, 1023),) * 32

TRIALS = (
    TrialBatch("a mixed batch", ((1, 700), (1, 64), (1, 31), (1, 511), (70, 0), (33, 90))),
    # Few and long: here kernels split contexts between cores, and put parts together again.
    TrialBatch("decodes of long contexts", ((1, 3000), (1, 1500), (1, 15))),
    TrialBatch("decodes of equal contexts", ((1, 2047),) * 3),
    TrialBatch("a chunk of a long context", ((40, 2000),)),
)
TIMED = (
    TrialBatch("decodes", _DECODES),
    TrialBatch("decodes and a chunk", (*_DECODES[:16], (256, 512))),
)

_TOLERANCE = 0.02
"""Of a head's output for a row. bfloat16 has 8 bits, which makes 0.4 %; a token left out of a
context of 3,000 makes 2 to 10 % in some head."""

_SCATTER = 2654435761  # Knuth's multiplicative hash: neighbours end far apart


class Trial:
    """A cache of one layer, filled, and queries."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self._generator = torch.Generator(setting.device).manual_seed(0)
        most = max(num_blocks(batch.sizes, setting.block_size) for batch in (*TRIALS, *TIMED))
        one_layer = replace(setting.model, num_hidden_layers=1)
        self._cache = PagedKVCache(
            one_layer, most, setting.block_size, setting.device, setting.dtype
        )
        self._cache.fill(self._generator)
        rows = max(sum(new for new, _ in batch.sizes) for batch in (*TRIALS, *TIMED))
        model = setting.model
        self._queries = torch.empty(
            (rows, model.num_attention_heads, model.head_dim),
            dtype=setting.dtype,
            device=setting.device,
        ).normal_(generator=self._generator)

    def run(self, kernel: PagedAttention, batch: TrialBatch) -> torch.Tensor:
        """Return the result (rows, heads, head dim); raises what the kernel raises."""
        with torch.inference_mode():
            result: torch.Tensor = self.work(kernel, batch)()
            return result.float() if result.device.type == "cpu" else result.float().cpu()

    def work(self, kernel: PagedAttention, batch: TrialBatch) -> Callable[[], torch.Tensor]:
        """Return what runs the kernel for a batch that it has planned."""
        packed = self._packed(batch)
        plan = kernel.plan(packed)
        query = self._queries[: len(packed.token_ids)]
        return lambda: kernel.run(0, query, self._cache, plan)

    def difference(self, result: torch.Tensor, right: torch.Tensor) -> str:
        """Return how far a result is from the right one, "" if no more than rounding makes."""
        if result.shape != right.shape:
            return f"shape {tuple(result.shape)}, not {tuple(right.shape)}"
        off = (result - right).norm(dim=-1) / right.norm(dim=-1)
        worst = float(off.max())  # NaN stays NaN
        return "" if worst <= _TOLERANCE else f"off by {worst:.1%} in some head"

    def _packed(self, batch: TrialBatch) -> StepBatch:
        block_size = self.setting.block_size
        return pack(_pieces(batch.sizes, block_size), block_size)


def num_blocks(sizes: Sizes, block_size: int) -> int:
    """Return the blocks that a batch's pieces take."""
    return sum(-(-(new + computed) // block_size) for new, computed in sizes)


def _pieces(sizes: Sequence[tuple[int, int]], block_size: int) -> list[Piece]:
    """Pieces whose blocks lie scattered, each its own."""
    counts = [-(-(new + computed) // block_size) for new, computed in sizes]
    blocks = sorted(range(sum(counts)), key=lambda block: block * _SCATTER % 2**32)
    parts = np.split(np.array(blocks, dtype=np.int64), np.cumsum(counts)[:-1])
    return [
        Piece(np.zeros(new, dtype=np.int64), computed, part)
        for (new, computed), part in zip(sizes, parts, strict=True)
    ]
