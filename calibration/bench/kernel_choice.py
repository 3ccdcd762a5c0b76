"""Which paged attention kernel to measure: the quickest that gives the right result here."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import median

import numpy as np
import torch

from calibration.bench.attention import GatherAttention, PagedAttention, PagedKVCache
from calibration.bench.device import BenchDevice
from calibration.bench.paged_kernels import installed_kernels
from calibration.bench.step_batch import Piece, StepBatch, pack
from calibration.model_spec import ModelSpec

_SIZES = ((1, 700), (1, 64), (1, 31), (1, 511), (70, 0), (33, 90))  # (new, computed) of the pieces
_TOLERANCE = 0.03  # bfloat16 has 8 bits; keys and values are random numbers of size 1
_RUNS = 7
_SCATTER = 2654435761  # Knuth's multiplicative hash: neighbours end far apart


def choose_attention(
    device: BenchDevice, model: ModelSpec, dtype: torch.dtype, block_size: int
) -> PagedAttention:
    """Return the best paged kernel that runs on the device; on the CPU there is one."""
    if not device.is_cuda:
        return GatherAttention(device.torch_device, dtype)
    kernels = installed_kernels(device.torch_device, model, dtype, block_size)
    return quickest(kernels, device, model, dtype, block_size)


def quickest(
    kernels: Iterable[PagedAttention],
    device: BenchDevice,
    model: ModelSpec,
    dtype: torch.dtype,
    block_size: int,
) -> PagedAttention:
    """Return the kernel that takes least time for a mixed batch; gathered blocks if none is right.

    Right is what agrees with gathered blocks. A kernel that raises is passed over: its package may
    be there without support for this GPU, this format or this block size.
    """
    gathered = GatherAttention(device.torch_device, dtype)
    trial = _Trial(device, model, dtype, block_size)
    expected = trial.run(gathered)
    assert expected is not None
    timed: list[tuple[float, int, PagedAttention]] = []
    for kernel in kernels:
        result = trial.run(kernel)
        if result is not None and torch.allclose(
            result.float(), expected.float(), rtol=_TOLERANCE, atol=_TOLERANCE
        ):
            timed.append((trial.time_s(kernel), len(timed), kernel))
    return min(timed)[2] if timed else gathered


class _Trial:
    """A mixed batch over a cache of one layer."""

    def __init__(
        self, device: BenchDevice, model: ModelSpec, dtype: torch.dtype, block_size: int
    ) -> None:
        self._device = device
        self._batch = _mixed_batch(block_size)
        num_blocks = 1 + max(int(piece.block_ids.max()) for piece in self._batch.pieces)
        one_layer = replace(model, num_hidden_layers=1)
        on = device.torch_device
        self._cache = PagedKVCache(one_layer, num_blocks, block_size, on, dtype)
        generator = torch.Generator(on).manual_seed(0)
        self._cache.fill(generator)
        sizes = (len(self._batch.token_ids), model.num_attention_heads, model.head_dim)
        self._query = torch.empty(sizes, dtype=dtype, device=on).normal_(generator=generator)

    def run(self, kernel: PagedAttention) -> torch.Tensor | None:
        """Return the result; None from a kernel that can't."""
        try:
            with torch.inference_mode():
                plan = kernel.plan(self._batch)
                result = kernel.run(0, self._query, self._cache, plan)
                self._device.synchronize()
        except Exception:  # packages raise whatever they like for what they don't support
            return None
        return result

    def time_s(self, kernel: PagedAttention) -> float:
        """Return the median time of a layer; the plan, which all layers share, is not in it."""
        times = []
        with torch.inference_mode():
            plan = kernel.plan(self._batch)
            for _ in range(_RUNS):
                self._device.synchronize()
                start_s = time.perf_counter()
                kernel.run(0, self._query, self._cache, plan)
                self._device.synchronize()
                times.append(time.perf_counter() - start_s)
        return median(times)


def _mixed_batch(block_size: int) -> StepBatch:
    return pack(_pieces(_SIZES, block_size), block_size)


def _pieces(sizes: Sequence[tuple[int, int]], block_size: int) -> list[Piece]:
    """Pieces whose blocks lie scattered, each its own."""
    counts = [-(-(new + computed) // block_size) for new, computed in sizes]
    blocks = sorted(range(sum(counts)), key=lambda block: block * _SCATTER % 2**32)
    parts = np.split(np.array(blocks, dtype=np.int64), np.cumsum(counts)[:-1])
    return [
        Piece(np.zeros(new, dtype=np.int64), computed, part)
        for (new, computed), part in zip(sizes, parts, strict=True)
    ]
