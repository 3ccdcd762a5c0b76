"""Attention kernels that find the KV blocks of a whole batch by one padded table.

Each function here takes a package's own function and returns the kernel that calls it; the
signatures they are written to are recorded in `tests/calibration/bench/recorded_signatures.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from calibration.bench.attention import PagedKVCache
from calibration.bench.step_batch import StepBatch
from calibration.model_spec import ModelSpec


@dataclass(frozen=True, slots=True)
class Setting:
    """What a kernel is to run on: device, one GPU's share of a model, its format, the blocks.

    `is_captured`: it must run in a CUDA graph, too.
    """

    device: torch.device
    model: ModelSpec
    dtype: torch.dtype
    block_size: int
    is_captured: bool = False


@dataclass(frozen=True, slots=True)
class TablePlan:
    """A batch as kernels with a block table take it, on the device; all int32.

    `starts` (pieces + 1): first row of each piece, and the end. `contexts` (pieces): tokens that
    its last row sees. `context_starts`: their running sums from 0. `table` (pieces, most blocks):
    blocks in order, 0 beyond the last. `schedule`: what the kernel itself has worked out ahead.
    """

    starts: torch.Tensor
    contexts: torch.Tensor
    context_starts: torch.Tensor
    table: torch.Tensor
    longest_new: int
    longest_context: int
    schedule: Any = None


TableKernel = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, TablePlan], torch.Tensor]
"""(query, keys, values, plan): rows attend causally, each piece's last row to its whole context."""

Scheduler = Callable[[TablePlan], Any]
"""Gives a plan's `schedule`."""


class TableAttention:
    """A kernel that finds the blocks by a table: one launch a layer for the whole batch."""

    def __init__(
        self,
        device: torch.device,
        name: str,
        kernel: TableKernel,
        scheduler: Scheduler | None = None,
    ) -> None:
        self._device, self._name = device, name
        self._kernel, self._scheduler = kernel, scheduler

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
        plan = TablePlan(
            self._to_device(sums(counts)),
            self._to_device(contexts),
            self._to_device(sums(contexts)),
            torch.from_numpy(table).to(self._device),
            max(counts),
            max(contexts),
        )
        if self._scheduler is None:
            return plan
        return replace(plan, schedule=self._scheduler(plan))

    def run(
        self, layer: int, query: torch.Tensor, cache: PagedKVCache, plan: TablePlan
    ) -> torch.Tensor:
        """Attend all pieces in one launch."""
        return self._kernel(query, cache.keys[layer], cache.values[layer], plan)

    def _to_device(self, values: Any) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int32, device=self._device)


class FirstThatRuns:
    """A kernel that can be called in several ways, by the version: the first that doesn't raise.

    Which one is found out at the first call, and stays.
    """

    def __init__(self, ways: Sequence[TableKernel]) -> None:
        self._ways = list(ways)

    def __call__(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, plan: TablePlan
    ) -> torch.Tensor:
        """Run the kernel. Raises what the last way raises."""
        while len(self._ways) > 1:
            try:
                out = self._ways[0](q, k, v, plan)
            except Exception:  # packages raise whatever they like for what they don't support
                del self._ways[0]
            else:
                self._ways = self._ways[:1]
                return out
        return self._ways[0](q, k, v, plan)


def torch_kernel(varlen_attn: Any) -> TableKernel:
    """Torch's varlen attention.

    Its own build of FlashAttention 2 wants running sums of contexts, though a table makes them
    meaningless, and splits contexts wrongly if it may split (pytorch issue 194167). Versions before
    that take no number of splits; FlashAttention 3 and 4, where they were activated, no sums.
    """

    def way(with_sums: bool, **more: Any) -> TableKernel:
        def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, plan: TablePlan) -> torch.Tensor:
            out: torch.Tensor = varlen_attn(
                q,
                k,
                v,
                plan.starts,
                plan.context_starts if with_sums else None,
                plan.longest_new,
                plan.longest_context,
                window_size=(-1, 0),
                enable_gqa=q.shape[1] != k.shape[2],
                seqused_k=plan.contexts,
                block_table=plan.table,
                **more,
            )
            return out

        return run

    return FirstThatRuns([way(True, num_splits=1), way(True), way(False)])


def vllm_kernel(flash_attn_varlen_func: Any, version: int) -> TableKernel:
    """vLLM's build of a version of FlashAttention, as its backend calls it."""

    def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, plan: TablePlan) -> torch.Tensor:
        schedule = {} if plan.schedule is None else {"scheduler_metadata": plan.schedule}
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
            **schedule,
        )
        return out

    return run


def vllm_scheduler(get_scheduler_metadata: Any, setting: Setting) -> Scheduler:
    """What vLLM has FlashAttention 3 work out once a step, which each layer would do anew."""
    model = setting.model

    def schedule(plan: TablePlan) -> Any:
        return get_scheduler_metadata(
            batch_size=len(plan.contexts),
            max_seqlen_q=plan.longest_new,
            max_seqlen_k=plan.longest_context,
            num_heads_q=model.num_attention_heads,
            num_heads_kv=model.num_key_value_heads,
            headdim=model.head_dim,
            cache_seqlens=plan.contexts,
            qkv_dtype=setting.dtype,
            cu_seqlens_q=plan.starts,
            page_size=setting.block_size,
            causal=True,
            window_size=(-1, -1),
            num_splits=0,
        )

    return schedule


def flash_3_kernel(flash_attn_with_kvcache: Any) -> TableKernel:
    """FlashAttention 3 of its own package."""

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

    return run


def flash_2_kernel(flash_attn_varlen_func: Any) -> TableKernel:
    """FlashAttention 2 of its own package; its blocks are multiples of 256 tokens."""

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

    return run


def sums(counts: Sequence[int]) -> list[int]:
    """Running sums from 0."""
    return [0, *np.cumsum(counts).tolist()]
