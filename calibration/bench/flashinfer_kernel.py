"""FlashInfer's attention over a paged KV cache."""

from __future__ import annotations

from typing import Any

import torch

from calibration.bench.attention import PagedKVCache
from calibration.bench.step_batch import StepBatch
from calibration.bench.table_kernels import Setting, sums

_WORKSPACE_BYTES = 256 * 1024 * 1024  # what FlashInfer asks for


def page_lists(batch: StepBatch, block_size: int) -> tuple[list[int], list[int], list[int]]:
    """A batch's blocks as FlashInfer takes them: all in one list.

    Returns where each piece's blocks begin in the list and the end, the list, and the tokens in
    each piece's last block.
    """
    blocks = [piece.block_ids[: -(-piece.context // block_size)].tolist() for piece in batch.pieces]
    in_last = [(piece.context - 1) % block_size + 1 for piece in batch.pieces]
    return sums([len(each) for each in blocks]), [b for each in blocks for b in each], in_last


class FlashInferAttention:
    """FlashInfer's kernel for chunks and decodes together, as vLLM's backend runs a mixed batch.

    A plan is made on the host and copied: never in a graph, and once for all layers. Each has a
    wrapper of its own, for a graph of an earlier one may still be replayed; the wrappers share the
    workspace that only a run uses.
    """

    def __init__(self, flashinfer: Any, setting: Setting) -> None:
        self._flashinfer, self._setting = flashinfer, setting
        self._workspace = torch.empty(_WORKSPACE_BYTES, dtype=torch.uint8, device=setting.device)

    @property
    def name(self) -> str:
        """Which kernel runs."""
        return f"flashinfer {self._flashinfer.__version__} paged prefill"

    def plan(self, batch: StepBatch) -> Any:
        """Return a wrapper that has planned the batch."""
        wrapper = self._flashinfer.BatchPrefillWithPagedKVCacheWrapper(self._workspace, "NHD")
        model, dtype = self._setting.model, self._setting.dtype
        firsts, blocks, in_last = page_lists(batch, self._setting.block_size)
        wrapper.plan(
            # It reads all but the blocks on the host: from the device they would come back.
            _host(sums([len(piece.token_ids) for piece in batch.pieces])),
            _host(firsts),
            _host(blocks).to(self._setting.device),
            _host(in_last),
            model.num_attention_heads,
            model.num_key_value_heads,
            model.head_dim,
            self._setting.block_size,
            causal=True,
            q_data_type=dtype,
            kv_data_type=dtype,
        )
        return wrapper

    def run(self, layer: int, query: torch.Tensor, cache: PagedKVCache, plan: Any) -> torch.Tensor:
        """Attend all pieces in one launch."""
        out: torch.Tensor = plan.run(query, (cache.keys[layer], cache.values[layer]))
        return out


def _host(values: list[int]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)
