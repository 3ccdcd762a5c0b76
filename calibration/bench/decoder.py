"""A Llama-shaped decoder with random weights over a paged KV cache."""

from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import linear, rms_norm, silu

from calibration.bench.attention import PagedAttention, PagedKVCache
from calibration.bench.device import BenchDevice, torch_dtype
from calibration.bench.kernel_choice import choose_attention
from calibration.bench.step_batch import StepBatch
from calibration.bench.table_kernels import Setting
from calibration.errors import CalibrationError
from calibration.model_spec import ModelSpec

_EPSILON = 1e-5
_ROPE_BASE = 10000.0
_SPARE_BYTES = 1 << 28


@dataclass(frozen=True, slots=True)
class Layer:
    """Weights of one layer, (outputs, inputs) each."""

    qkv: torch.Tensor
    out: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor
    norm: torch.Tensor
    mlp_norm: torch.Tensor


@dataclass(frozen=True, slots=True)
class Rows:
    """A batch's rows on the device; cosine and sine are (rows, 1, head dim / 2)."""

    token_ids: torch.Tensor
    slots: torch.Tensor
    logit_rows: torch.Tensor
    cosine: torch.Tensor
    sine: torch.Tensor


@dataclass(frozen=True, slots=True)
class Prepared:
    """A batch on the device: its rows, and what the attention kernel has planned for it."""

    rows: Rows
    plan: Any


class Decoder:
    """The model and its kernels on one device.

    `step` is a whole step: `prepare` puts a batch on the device, `run` computes it. Its parts
    (`embed`, `before_attention`, `after_attention`, `last_norm`, `sample`) are what the
    microbenchmarks time. `kernel` names the attention kernel to take, "" the quickest one; what
    became of each is in `kernels_tried`. `is_captured`: steps are to run in CUDA graphs.
    `num_positions`: how far it can go where that is beyond
    the model's own positions, as in batches that are only timed.

    Raises:
        CalibrationError: a model that it is not, too little memory, no such kernel here.
    """

    def __init__(
        self,
        model: ModelSpec,
        device: BenchDevice,
        block_size: int = 16,
        seed: int = 0,
        *,
        kernel: str = "",
        is_captured: bool = False,
        num_positions: int = 0,
    ) -> None:
        device.clear()
        _check(model, device)
        self.model, self.device, self.block_size = model, device, block_size
        self.dtype = torch_dtype(model.dtype)
        setting = Setting(device.torch_device, model, self.dtype, block_size, is_captured)
        chosen = choose_attention(device, setting, kernel)
        self.attention: PagedAttention = chosen.kernel
        self.kernels_tried = chosen.tried
        self._generator = torch.Generator(device.torch_device).manual_seed(seed)
        self.embedding = self._weights(model.vocab_size, model.hidden_size)
        self.layers = [self._layer() for _ in range(model.num_hidden_layers)]
        self.norm = self._ones()
        tied = model.tie_word_embeddings
        self.head = self.embedding if tied else self._weights(model.vocab_size, model.hidden_size)
        self._cosine, self._sine = self._rotary(max(num_positions, model.max_position_embeddings))

    # A whole step ------------------------------------------------------------------------

    def step(self, batch: StepBatch, cache: PagedKVCache) -> list[int]:
        """Compute a batch and return the next token of each piece that wants one (greedy)."""
        with torch.inference_mode():
            return self.run(self.prepare(batch), cache)

    def prepare(self, batch: StepBatch) -> Prepared:
        """Put a batch on the device, and plan its attention."""
        with torch.inference_mode():
            return Prepared(self.rows(batch), self.attention.plan(batch))

    def run(self, prepared: Prepared, cache: PagedKVCache) -> list[int]:
        """Compute a batch, wait, and return the tokens."""
        with torch.inference_mode():
            sampled = self.forward(prepared.rows, prepared.plan, cache)
            return [int(token) for token in sampled.tolist()]

    def forward(self, rows: Rows, plan: Any, cache: PagedKVCache) -> torch.Tensor:
        """Return the sampled tokens on the device, without waiting for them.

        `plan` is the attention kernel's for the same batch.
        """
        x = self.embed(rows)
        for number in range(len(self.layers)):
            query = self.before_attention(number, x, rows, cache)
            attended = self.attention.run(number, query, cache, plan)
            x = self.after_attention(number, x, attended)
        return self.sample(self.last_norm(x), rows)

    # Its parts ---------------------------------------------------------------------------

    def rows(self, batch: StepBatch) -> Rows:
        """Put the rows on the device."""
        to = self.device.torch_device
        # Beyond the table CUDA has no error but one that no later work on the device survives.
        last = int(batch.positions.max())
        if last >= len(self._cosine):
            raise CalibrationError(
                f"{self.model.name}: position {last} is beyond the {len(self._cosine)} that it has"
            )
        positions = torch.from_numpy(batch.positions).to(to)
        return Rows(
            torch.from_numpy(batch.token_ids).to(to),
            torch.from_numpy(batch.slots).to(to),
            torch.from_numpy(batch.logit_rows).to(to),
            self._cosine.index_select(0, positions)[:, None, :],
            self._sine.index_select(0, positions)[:, None, :],
        )

    def embed(self, rows: Rows) -> torch.Tensor:
        """Return (rows, hidden)."""
        return self.embedding.index_select(0, rows.token_ids)

    def before_attention(
        self, number: int, x: torch.Tensor, rows: Rows, cache: PagedKVCache
    ) -> torch.Tensor:
        """Norm, QKV, rotary embedding, write to the cache; returns (rows, heads, head dim)."""
        model, layer = self.model, self.layers[number]
        qkv = linear(self.normed(x, layer.norm), layer.qkv)
        query, key, value = qkv.split([model.query_size, model.kv_size, model.kv_size], dim=-1)
        rotated = self.rotate(query.unflatten(-1, (-1, model.head_dim)), rows)
        key = self.rotate(key.unflatten(-1, (-1, model.head_dim)), rows)
        cache.write(number, key, value.unflatten(-1, (-1, model.head_dim)), rows.slots)
        return rotated

    def after_attention(self, number: int, x: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        """Output projection, norm, gated MLP, both residuals."""
        layer = self.layers[number]
        x = x + linear(attended.flatten(1), layer.out)
        hidden = linear(self.normed(x, layer.mlp_norm), layer.gate_up)
        return x + linear(self.activated(hidden), layer.down)

    def last_norm(self, x: torch.Tensor) -> torch.Tensor:
        """Return the normed hidden states."""
        return self.normed(x, self.norm)

    def sample(self, hidden: torch.Tensor, rows: Rows) -> torch.Tensor:
        """lm_head and the most likely token of each wanted row."""
        return linear(hidden.index_select(0, rows.logit_rows), self.head).argmax(dim=-1)

    def normed(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """RMS norm."""
        return rms_norm(x, (self.model.hidden_size,), weight, _EPSILON)

    def activated(self, hidden: torch.Tensor) -> torch.Tensor:
        """SiLU of the gate times up."""
        gate, up = hidden.chunk(2, dim=-1)
        return silu(gate) * up

    def rotate(self, x: torch.Tensor, rows: Rows) -> torch.Tensor:
        """Rotary embedding of (rows, heads, head dim), halves as pairs."""
        first, second = x.chunk(2, dim=-1)
        return torch.cat(
            (
                first * rows.cosine - second * rows.sine,
                second * rows.cosine + first * rows.sine,
            ),
            dim=-1,
        )

    # Weights -----------------------------------------------------------------------------

    def _layer(self) -> Layer:
        model = self.model
        return Layer(
            qkv=self._weights(model.query_size + 2 * model.kv_size, model.hidden_size),
            out=self._weights(model.hidden_size, model.query_size),
            gate_up=self._weights(2 * model.intermediate_size, model.hidden_size),
            down=self._weights(model.hidden_size, model.intermediate_size),
            norm=self._ones(),
            mlp_norm=self._ones(),
        )

    def _weights(self, outputs: int, inputs: int) -> torch.Tensor:
        weights = torch.empty(outputs, inputs, dtype=self.dtype, device=self.device.torch_device)
        return weights.normal_(0.0, inputs**-0.5, generator=self._generator)

    def _ones(self) -> torch.Tensor:
        return torch.ones(self.model.hidden_size, dtype=self.dtype, device=self.device.torch_device)

    def _rotary(self, num_positions: int) -> tuple[Any, Any]:
        half = self.model.head_dim // 2
        to = self.device.torch_device
        rates = _ROPE_BASE ** (-torch.arange(half, device=to, dtype=torch.float32) / half)
        positions = torch.arange(num_positions, device=to)
        angles = positions[:, None] * rates[None, :]
        return angles.cos().to(self.dtype), angles.sin().to(self.dtype)


def _check(model: ModelSpec, device: BenchDevice) -> None:
    if model.quantization is not None:
        raise CalibrationError(
            f"{model.name}: the decoder has no {model.weight_dtype} kernels;"
            " measure the model without quantisation"
        )
    if model.experts is not None or model.num_window_layers or model.has_attention_sinks:
        raise CalibrationError(
            f"{model.name}: the decoder is Llama's: it has no experts, no windows and no sinks"
        )
    if model.has_qkv_bias or model.has_output_bias or model.has_mlp_bias or model.has_qk_norm:
        raise CalibrationError(
            f"{model.name}: the decoder is Llama's: it has no biases and no norm of queries"
        )
    needed, free = model.weight_bytes_per_rank() + _SPARE_BYTES, device.free_bytes()
    if needed > free:
        raise CalibrationError(
            f"{model.name} needs {needed / 2**30:.1f} GiB for its weights;"
            f" {device.name} has {free / 2**30:.1f} GiB free"
        )
