"""A paged KV cache, and attention that reads it through block tables.

Two kernels: torch's own varlen attention (FlashAttention with a block table) on CUDA, and on any
device gathered blocks into `scaled_dot_product_attention`, piece by piece.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention

from calibration.bench.device import BenchDevice
from calibration.bench.step_batch import Piece, StepBatch
from calibration.errors import CalibrationError
from calibration.model_spec import ModelSpec


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
    out = scaled_dot_product_attention(
        query.transpose(0, 1)[None], keys, values, attn_mask=mask, enable_gqa=True
    )
    return out[0].transpose(0, 1)


@dataclass(frozen=True, slots=True)
class _VarlenPlan:
    starts: torch.Tensor
    contexts: torch.Tensor
    table: torch.Tensor
    longest_new: int
    longest_context: int


class VarlenAttention:
    """Torch's varlen attention with a block table: one launch a layer for the whole batch."""

    def __init__(self, device: torch.device, kernel: Callable[..., Any]) -> None:
        self._device, self._kernel = device, kernel

    @property
    def name(self) -> str:
        """Which kernel runs."""
        return f"torch {torch.__version__} varlen_attn with a block table"

    def plan(self, batch: StepBatch) -> _VarlenPlan:
        """Put starts, contexts and padded block tables on the device."""
        counts = [len(piece.token_ids) for piece in batch.pieces]
        contexts = [piece.context for piece in batch.pieces]
        width = max(len(piece.block_ids) for piece in batch.pieces)
        table = np.zeros((len(counts), width), dtype=np.int32)
        for row, piece in zip(table, batch.pieces, strict=True):
            row[: len(piece.block_ids)] = piece.block_ids
        starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        return _VarlenPlan(
            torch.from_numpy(starts).to(self._device),
            torch.tensor(contexts, dtype=torch.int32, device=self._device),
            torch.from_numpy(table).to(self._device),
            max(counts),
            max(contexts),
        )

    def run(
        self, layer: int, query: torch.Tensor, cache: PagedKVCache, plan: _VarlenPlan
    ) -> torch.Tensor:
        """Attend all pieces in one launch."""
        out: torch.Tensor = self._kernel(
            query,
            cache.keys[layer],
            cache.values[layer],
            plan.starts,
            None,
            plan.longest_new,
            plan.longest_context,
            window_size=(-1, 0),
            enable_gqa=query.shape[1] != cache.keys[layer].shape[2],
            seqused_k=plan.contexts,
            block_table=plan.table,
        )
        return out


def choose_attention(
    device: BenchDevice, model: ModelSpec, dtype: torch.dtype, block_size: int
) -> PagedAttention:
    """Return the best paged kernel that runs here: tried once on a tiny batch, not guessed."""
    if device.is_cuda:
        varlen = _varlen(device, model, dtype, block_size)
        if varlen is not None:
            return varlen
    return GatherAttention(device.torch_device, dtype)


def _varlen(
    device: BenchDevice, model: ModelSpec, dtype: torch.dtype, block_size: int
) -> VarlenAttention | None:
    try:
        from torch.nn.attention.varlen import varlen_attn  # noqa: PLC0415 - since torch 2.10
    except ImportError:
        return None
    attention = VarlenAttention(device.torch_device, varlen_attn)
    cache = PagedKVCache(model, 2, block_size, device.torch_device, dtype)
    one = Piece(np.zeros(1, np.int64), 3, np.ones(1, np.int64))
    batch = StepBatch((one,), 1, one.token_ids, one.token_ids, one.token_ids, one.token_ids)
    query = torch.zeros(
        1, model.num_attention_heads, model.head_dim, dtype=dtype, device=device.torch_device
    )
    try:
        attention.run(0, query, cache, attention.plan(batch))
        device.synchronize()
    except (RuntimeError, TypeError, NotImplementedError):
        return None
    return attention


def make_cache(
    model: ModelSpec, num_blocks: int, block_size: int, device: BenchDevice, dtype: torch.dtype
) -> PagedKVCache:
    """Return an empty cache.

    Raises:
        CalibrationError: the device has too little memory for it.
    """
    bytes_per_token = 2 * model.num_hidden_layers * model.kv_size * dtype.itemsize
    needed, free = num_blocks * block_size * bytes_per_token, device.free_bytes()
    if needed > free:
        raise CalibrationError(
            f"a KV cache of {num_blocks} blocks of {block_size} tokens needs {needed / 2**30:.2f}"
            f" GiB for {model.name}; {device.name} has {free / 2**30:.2f} GiB free:"
            " lower max_num_seqs or max_model_len"
        )
    return PagedKVCache(model, num_blocks, block_size, device.torch_device, dtype)
