"""A paged KV cache, and attention that reads it through block tables.

The kernel here runs on any device: gathered blocks into `scaled_dot_product_attention`, piece by
piece. Those of CUDA are in `paged_kernels`.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch.nn.functional import scaled_dot_product_attention

from calibration.bench.device import BenchDevice
from calibration.bench.step_batch import Piece, StepBatch
from calibration.errors import CalibrationError
from calibration.model_spec import ModelSpec

_MOST_SCORES_BYTES = 2**30  # of a chunk's float32 scores at once


class PagedKVCache:
    """Keys and values of every layer: (blocks, block size, KV heads, head dim) each."""

    def __init__(
        self,
        model: ModelSpec,
        num_blocks: int,
        block_size: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        sizes = (num_blocks, block_size, model.num_key_value_heads, model.head_dim)
        self.block_size = block_size
        self.num_blocks = num_blocks
        layers = range(model.num_hidden_layers)
        # Written, not only promised by the system: it takes microseconds to make a page real, and
        # the steps that write to it first would have them.
        self.keys = [torch.empty(sizes, dtype=dtype, device=device).zero_() for _ in layers]
        self.values = [torch.empty(sizes, dtype=dtype, device=device).zero_() for _ in layers]

    def fill(self, generator: torch.Generator) -> None:
        """Put random numbers everywhere, as if everything had been computed."""
        for tensor in (*self.keys, *self.values):
            tensor.normal_(generator=generator)

    def write(
        self, layer: int, keys: torch.Tensor, values: torch.Tensor, slots: torch.Tensor
    ) -> None:
        """Store the rows' keys and values (rows, KV heads, head dim) at their slots."""
        self.keys[layer].flatten(0, 1).index_copy_(0, slots, keys)
        self.values[layer].flatten(0, 1).index_copy_(0, slots, values)


class PagedAttention(Protocol):
    """A kernel. `plan` prepares what all layers of a step share; `run` is one layer."""

    @property
    def name(self) -> str:
        """Which kernel runs, for the profile."""
        ...

    def plan(self, batch: StepBatch) -> Any:
        """Prepare a step."""
        ...

    def run(self, layer: int, query: torch.Tensor, cache: PagedKVCache, plan: Any) -> torch.Tensor:
        """Return (rows, heads, head dim) for a query of the same shape."""
        ...


@dataclass(frozen=True, slots=True)
class _Gathered:
    """A piece's rows, its blocks, and its mask (None: one token, which sees all)."""

    first_row: int
    num_rows: int
    context: int
    blocks: torch.Tensor
    mask: torch.Tensor | None


class GatherAttention:
    """Gathers each piece's blocks and calls torch's fused attention; runs everywhere."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self._device, self._dtype = device, dtype

    @property
    def name(self) -> str:
        """Which kernel runs."""
        return f"torch {torch.__version__} scaled_dot_product_attention over gathered blocks"

    def plan(self, batch: StepBatch) -> list[_Gathered]:
        """Put block tables on the device, and make the chunks' masks."""
        plan = []
        first_row = 0
        for piece in batch.pieces:
            plan.append(self._gathered(piece, first_row, batch))
            first_row += len(piece.token_ids)
        return plan

    def run(
        self, layer: int, query: torch.Tensor, cache: PagedKVCache, plan: list[_Gathered]
    ) -> torch.Tensor:
        """Attend piece by piece."""
        out = torch.empty_like(query)
        keys, values = cache.keys[layer], cache.values[layer]
        for piece in plan:
            rows = slice(piece.first_row, piece.first_row + piece.num_rows)
            k = _gather(keys, piece)
            v = _gather(values, piece)
            out[rows] = _attend(query[rows], k, v, piece.mask)
        return out

    def _gathered(self, piece: Piece, first_row: int, batch: StepBatch) -> _Gathered:
        new, context = len(piece.token_ids), piece.context
        blocks = torch.from_numpy(piece.block_ids).to(self._device)
        mask = self._mask(new, context) if new > 1 else None
        return _Gathered(first_row, new, context, blocks, mask)

    def _mask(self, new: int, context: int) -> torch.Tensor:
        """Zero where row i may look, -inf beyond its own position."""
        rows = torch.arange(context - new, context, device=self._device)
        columns = torch.arange(context, device=self._device)
        mask = torch.zeros(new, context, dtype=self._dtype, device=self._device)
        return mask.masked_fill_(columns[None, :] > rows[:, None], float("-inf"))


def _gather(cache: torch.Tensor, piece: _Gathered) -> torch.Tensor:
    """Return (1, KV heads, context, head dim)."""
    tokens = cache.index_select(0, piece.blocks).flatten(0, 1)[: piece.context]
    return tokens.transpose(0, 1)[None]


def _attend(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None
) -> torch.Tensor:
    if mask is None:  # the queries of one KV head as rows of one product
        _, heads, head_dim = query.shape
        grouped = query.view(1, keys.shape[1], -1, head_dim)
        return scaled_dot_product_attention(grouped, keys, values).view(1, heads, head_dim)
    # CUDA's fused kernels take no mask with grouped heads: all scores lie in memory.
    rows = max(1, _MOST_SCORES_BYTES // (4 * query.shape[1] * keys.shape[2]))
    out = [
        scaled_dot_product_attention(
            part.transpose(0, 1)[None], keys, values, attn_mask=own, enable_gqa=True
        )
        for part, own in zip(query.split(rows), mask.split(rows), strict=True)
    ]
    return torch.cat(out, dim=2)[0].transpose(0, 1) if len(out) > 1 else out[0][0].transpose(0, 1)


def make_cache(
    model: ModelSpec, num_blocks: int, block_size: int, device: BenchDevice, dtype: torch.dtype
) -> PagedKVCache:
    """Return an empty cache.

    Raises:
        CalibrationError: the device has too little memory for it.
    """
    bytes_per_token = 2 * model.num_hidden_layers * model.kv_size * dtype.itemsize
    needed, free = num_blocks * block_size * bytes_per_token, device.free_bytes()
    too_little = CalibrationError(
        f"a KV cache of {num_blocks} blocks of {block_size} tokens needs {needed / 2**30:.2f}"
        f" GiB for {model.name}; {device.name} has {free / 2**30:.2f} GiB free:"
        " lower max_num_seqs or max_model_len"
    )
    if needed > free:
        raise too_little
    try:
        return PagedKVCache(model, num_blocks, block_size, device.torch_device, dtype)
    except torch.OutOfMemoryError as error:  # free, but in pieces
        raise too_little from error
