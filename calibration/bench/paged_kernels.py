"""Paged attention kernels of CUDA, where they are installed, behind one interface.

Serving engines call these: vLLM's own build of FlashAttention, FlashAttention 2 and 3, FlashInfer,
and torch's varlen attention. Which is quickest depends on the GPU, so `kernel_choice` tries them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from calibration.bench.attention import PagedAttention, PagedKVCache
from calibration.bench.step_batch import StepBatch
from calibration.model_spec import ModelSpec

_WORKSPACE_BYTES = 256 * 1024 * 1024  # what FlashInfer asks for
_FLASH_VERSIONS = (4, 3, 2)  # of vLLM's build; which of them work depends on the GPU


@dataclass(frozen=True, slots=True)
class TablePlan:
    """A batch as kernels with a block table take it, on the device.

    `starts` (pieces + 1): first row of each piece, and the end. `contexts` (pieces): tokens that
    its last row sees. `context_starts`: their running sums from 0. `table` (pieces, most blocks):
    blocks in order, 0 beyond the last.
    """

    starts: torch.Tensor
    contexts: torch.Tensor
    context_starts: torch.Tensor
    table: torch.Tensor
    longest_new: int
    longest_context: int


TableKernel = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, TablePlan], torch.Tensor]
"""(query, keys, values, plan): rows attend causally, each piece's last row to its whole context."""


class TableAttention:
    """A kernel that finds the blocks by a table: one launch a layer for the whole batch."""

    def __init__(self, device: torch.device, name: str, kernel: TableKernel) -> None:
        self._device, self._name, self._kernel = device, name, kernel

    @property
    def name(self) -> str:
        """Which kernel runs."""
        return self._name

    def plan(self, batch: StepBatch) -> TablePlan:
        """Put starts, contexts and padded block tables on the device."""
        counts = [len(piece.token_ids) for piece in batch.pieces]
        contexts = [piece.context for piece in batch.pieces]
        width = max(len(piece.block_ids) for piece in batch.pieces)
        table = np.zeros((len(counts), width), dtype=np.int32)
        for row, piece in zip(table, batch.pieces, strict=True):
            row[: len(piece.block_ids)] = piece.block_ids
        return TablePlan(
            self._to_device(_sums(counts)),
            self._to_device(contexts),
            self._to_device(_sums(contexts)),
            torch.from_numpy(table).to(self._device),
            max(counts),
            max(contexts),
        )

    def run(
        self, layer: int, query: torch.Tensor, cache: PagedKVCache, plan: TablePlan
    ) -> torch.Tensor:
        """Attend all pieces in one launch."""
        return self._kernel(query, cache.keys[layer], cache.values[layer], plan)

    def _to_device(self, values: Any) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int32, device=self._device)


def page_lists(batch: StepBatch, block_size: int) -> tuple[list[int], list[int], list[int]]:
    """A batch's blocks as FlashInfer takes them: all in one list.

    Returns where each piece's blocks begin in the list and the end, the list, and the tokens in
    each piece's last block.
    """
    blocks = [piece.block_ids[: -(-piece.context // block_size)].tolist() for piece in batch.pieces]
    in_last = [(piece.context - 1) % block_size + 1 for piece in batch.pieces]
    return _sums([len(each) for each in blocks]), [b for each in blocks for b in each], in_last


class FlashInferAttention:
    """FlashInfer's kernel for chunks and decodes together, as vLLM's backend runs a mixed batch."""

    def __init__(
        self, device: torch.device, model: ModelSpec, dtype: torch.dtype, block_size: int
    ) -> None:
        import flashinfer  # noqa: PLC0415 - not everybody has it

        self._flashinfer = flashinfer
        self._model, self._dtype, self._block_size = model, dtype, block_size
        self._device = device
        self._workspace = torch.empty(_WORKSPACE_BYTES, dtype=torch.uint8, device=device)

    @property
    def name(self) -> str:
        """Which kernel runs."""
        return f"flashinfer {self._flashinfer.__version__} paged prefill"

    def plan(self, batch: StepBatch) -> Any:
        """Return a wrapper that has planned the batch; runs of several share one workspace."""
        wrapper = self._flashinfer.BatchPrefillWithPagedKVCacheWrapper(self._workspace, "NHD")
        starts = _sums([len(piece.token_ids) for piece in batch.pieces])
        firsts, blocks, in_last = page_lists(batch, self._block_size)
        wrapper.plan(
            *(
                torch.tensor(values, dtype=torch.int32, device=self._device)
                for values in (starts, firsts, blocks, in_last)
            ),
            self._model.num_attention_heads,
            self._model.num_key_value_heads,
            self._model.head_dim,
            self._block_size,
            causal=True,
            q_data_type=self._dtype,
        )
        return wrapper

    def run(self, layer: int, query: torch.Tensor, cache: PagedKVCache, plan: Any) -> torch.Tensor:
        """Attend all pieces in one launch."""
        out: torch.Tensor = plan.run(query, (cache.keys[layer], cache.values[layer]))
        return out


def installed_kernels(
    device: torch.device, model: ModelSpec, dtype: torch.dtype, block_size: int
) -> Iterator[PagedAttention]:
    """Every kernel whose package can be imported; whether it works here is not known yet."""
    for make in (_vllm_flash, _flash_3, _flash_2, _torch_varlen):
        for name, kernel in make():
            yield TableAttention(device, name, kernel)
    try:
        yield FlashInferAttention(device, model, dtype, block_size)
    except ImportError:
        return


def _torch_varlen() -> Iterator[tuple[str, TableKernel]]:
    try:
        from torch.nn.attention.varlen import varlen_attn  # noqa: PLC0415 - since torch 2.10
    except ImportError:
        return

    def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, plan: TablePlan) -> torch.Tensor:
        out: torch.Tensor = varlen_attn(
            q,
            k,
            v,
            plan.starts,
            None,
            plan.longest_new,
            plan.longest_context,
            window_size=(-1, 0),
            enable_gqa=q.shape[1] != k.shape[2],
            seqused_k=plan.contexts,
            block_table=plan.table,
        )
        return out

    yield f"torch {torch.__version__} varlen_attn with a block table", run


def _vllm_flash() -> Iterator[tuple[str, TableKernel]]:
    try:
        import vllm  # noqa: PLC0415
        from vllm.vllm_flash_attn import flash_attn_varlen_func  # noqa: PLC0415
    except ImportError:
        return

    def of_version(version: int) -> TableKernel:
        def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, plan: TablePlan) -> torch.Tensor:
            out: torch.Tensor = flash_attn_varlen_func(
                q,
                k,
                v,
                max_seqlen_q=plan.longest_new,
                cu_seqlens_q=plan.starts,
                max_seqlen_k=plan.longest_context,
                seqused_k=plan.contexts,
                causal=True,
                block_table=plan.table,
                fa_version=version,
            )
            return out

        return run

    for version in _FLASH_VERSIONS:
        yield f"vllm {vllm.__version__} FlashAttention {version}", of_version(version)


def _flash_3() -> Iterator[tuple[str, TableKernel]]:
    try:
        from flash_attn_interface import flash_attn_with_kvcache  # noqa: PLC0415
    except ImportError:
        return

    def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, plan: TablePlan) -> torch.Tensor:
        out: torch.Tensor = flash_attn_with_kvcache(
            q,
            k,
            v,
            cache_seqlens=plan.contexts,
            page_table=plan.table,
            cu_seqlens_q=plan.starts,
            max_seqlen_q=plan.longest_new,
            causal=True,
        )
        return out

    yield "FlashAttention 3", run


def _flash_2() -> Iterator[tuple[str, TableKernel]]:
    try:
        import flash_attn  # noqa: PLC0415
        from flash_attn import flash_attn_varlen_func  # noqa: PLC0415
    except ImportError:
        return

    def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, plan: TablePlan) -> torch.Tensor:
        out: torch.Tensor = flash_attn_varlen_func(
            q,
            k,
            v,
            plan.starts,
            plan.context_starts,
            plan.longest_new,
            plan.longest_context,
            causal=True,
            block_table=plan.table,
        )
        return out

    yield f"flash-attn {flash_attn.__version__}", run


def _sums(counts: list[int]) -> list[int]:
    """Running sums from 0."""
    return [0, *np.cumsum(counts).tolist()]
