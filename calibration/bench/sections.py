"""The microbenchmarks: for each point, work on the decoder's own weights and cache, and its time.

On the CPU the parts of a step are timed inside a whole step (`parts`). On CUDA each goes through
all layers alone, so that weights and cache blocks are as cold as in a step. Right before each
timing runs a small whole step, which leaves caches as the step before would. What the host copies
to a CUDA device is copied beforehand: a graph can't hold it, and engines do it while the device
still runs the step before.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn.functional import linear

from calibration.bench.attention import PagedKVCache
from calibration.bench.decoder import Decoder
from calibration.bench.parts import ATTENTION, DENSE, LOGITS, time_parts
from calibration.bench.points import CURVES, MIXED, OPERATION, SKEW, SKEWED_MIX, WHOLE, Point
from calibration.bench.samples import Sample
from calibration.bench.skewed_contexts import skewed_contexts
from calibration.bench.step_batch import IntArray, Piece, StepBatch, pack
from calibration.bench.timing import Timer, Work

OPERATIONS = (
    "embedding",
    "norms",
    "qkv_proj",
    "rotary_and_cache_write",
    "o_proj",
    "gate_up_proj",
    "activation",
    "down_proj",
)

_DECODES_BEFORE, _CONTEXT_BEFORE = 4, 127
_DECODES_UP_TO = 32  # rows of a product that are decodes, not a chunk, as in service
_ATTENTION = ("prefill_attention", "decode_attention", SKEW, MIXED, SKEWED_MIX)
_PARTS = {"dense": DENSE, "logits": LOGITS, **dict.fromkeys(_ATTENTION, ATTENTION)}


class Sections:
    """Times points on a decoder; `held_out` are the batches of the `whole_step` points."""

    def __init__(
        self,
        decoder: Decoder,
        cache: PagedKVCache,
        timer: Timer,
        rng: np.random.Generator,
        held_out: Sequence[StepBatch] = (),
    ) -> None:
        self.decoder, self.cache = decoder, cache
        self.held_out = held_out
        self._timer, self._rng = timer, rng
        self._makers: dict[str, Callable[[Point], Work]] = {
            "dense": self._dense,
            "logits": self._logits,
            **dict.fromkeys(_ATTENTION, self._attention),
            WHOLE: self._whole,
        }
        self._before = self._batch([(1, _CONTEXT_BEFORE)] * _DECODES_BEFORE)
        self._one_before = self._batch([(1, _CONTEXT_BEFORE)])

    def measure(self, point: Point) -> Sample:
        """Time a point once."""
        with torch.inference_mode():
            if point.table in _PARTS and not self.decoder.device.is_cuda:
                return self._in_step(point)
            num_rows = self._num_rows(point)
            return self._timer(self._work(point), lambda: self._step_before(num_rows))

    def _in_step(self, point: Point) -> Sample:
        batch = self._batch(_sizes(point))
        self._step_before(len(batch.token_ids))
        return time_parts(self.decoder, batch, self.cache)[_PARTS[point.table]]

    def _num_rows(self, point: Point) -> int:
        if point.table == WHOLE:
            return len(self.held_out[point.first].token_ids)
        if point.table.startswith(OPERATION) or point.table in CURVES:
            return point.first
        return sum(num_new for num_new, _ in _sizes(point))

    def _step_before(self, num_rows: int) -> None:
        """A step of one row follows one of its kind, mostly; others follow some decodes.

        The kernels differ, and so does what they leave in the caches: on one core of an EPYC a step
        of one row took 6 % longer after a step of four, and one of four 4 % after a step of one.
        """
        self.decoder.step(self._one_before if num_rows == 1 else self._before, self.cache)

    def _work(self, point: Point) -> Work:
        if point.table.startswith(OPERATION):
            return self._operation(point.table.removeprefix(OPERATION), point.first)
        return self._makers[point.table](point)

    # The tables --------------------------------------------------------------------------

    def _dense(self, point: Point) -> Work:
        """Embedding, all layers without attention, last norm."""
        decoder, cache = self.decoder, self.cache
        batch = self._batch([(point.first, 0)])
        ready = decoder.rows(batch) if decoder.device.is_cuda else None

        def work() -> torch.Tensor:
            rows = ready or decoder.rows(batch)
            x = decoder.embed(rows)
            for number in range(len(decoder.layers)):
                query = decoder.before_attention(number, x, rows, cache)
                x = decoder.after_attention(number, x, query)
            return decoder.last_norm(x)

        return work

    def _logits(self, point: Point) -> Work:
        """lm_head and sampler."""
        decoder = self.decoder
        rows = decoder.rows(self._batch([(1, 0)] * point.first))
        hidden = self._noise(point.first, decoder.model.hidden_size)
        return lambda: decoder.sample(hidden, rows)

    def _attention(self, point: Point) -> Work:
        decoder, cache = self.decoder, self.cache
        model = decoder.model
        batch = self._batch(_sizes(point))
        query = self._noise(len(batch.token_ids), model.num_attention_heads, model.head_dim)
        attention = decoder.attention
        ready = attention.plan(batch) if decoder.device.is_cuda else None
        return lambda: _all_layers(decoder, query, cache, ready or attention.plan(batch))

    def _whole(self, point: Point) -> Work:
        decoder, cache, batch = self.decoder, self.cache, self.held_out[point.first]
        if decoder.device.is_cuda:
            rows, plan = decoder.rows(batch), decoder.attention.plan(batch)
            return lambda: decoder.forward(rows, plan, cache)
        return lambda: decoder.step(batch, cache)

    # One operation -----------------------------------------------------------------------

    def _operation(self, name: str, num_tokens: int) -> Work:
        decoder = self.decoder
        model = decoder.model
        rows = decoder.rows(self._batch([(num_tokens, 0)]))
        x = self._noise(num_tokens, model.hidden_size)
        queries = self._noise(num_tokens, model.query_size)
        wide = self._noise(num_tokens, 2 * model.intermediate_size)
        narrow = self._noise(num_tokens, model.intermediate_size)
        layers = decoder.layers
        works: dict[str, Work] = {
            "embedding": lambda: decoder.embed(rows),
            "norms": lambda: [
                (decoder.normed(x, layer.norm), decoder.normed(x, layer.mlp_norm))
                for layer in layers
            ],
            "qkv_proj": lambda: [linear(x, layer.qkv) for layer in layers],
            "rotary_and_cache_write": lambda: self._rotate_and_write(queries, rows),
            "o_proj": lambda: [linear(queries, layer.out) for layer in layers],
            "gate_up_proj": lambda: [linear(x, layer.gate_up) for layer in layers],
            "activation": lambda: [decoder.activated(wide) for _ in layers],
            "down_proj": lambda: [linear(narrow, layer.down) for layer in layers],
        }
        return works[name]

    def _rotate_and_write(self, queries: torch.Tensor, rows: Any) -> None:
        decoder = self.decoder
        model = decoder.model
        query = queries.unflatten(-1, (-1, model.head_dim))
        key = query[:, : model.num_key_value_heads]
        for number in range(len(decoder.layers)):
            decoder.rotate(query, rows)
            self.cache.write(number, decoder.rotate(key, rows), key, rows.slots)

    # Inputs ------------------------------------------------------------------------------

    def _batch(self, sizes: Sequence[tuple[int, int]]) -> StepBatch:
        """Pieces of (new, computed) tokens."""
        pieces = random_pieces(self._rng, self.decoder, self.cache, sizes)
        return pack(pieces, self.cache.block_size)

    def _noise(self, *sizes: int) -> torch.Tensor:
        decoder = self.decoder
        return torch.randn(*sizes, dtype=decoder.dtype, device=decoder.device.torch_device)


def random_pieces(
    rng: np.random.Generator,
    decoder: Decoder,
    cache: PagedKVCache,
    sizes: Sequence[tuple[int, int]],
) -> list[Piece]:
    """Pieces of (new, computed) tokens; blocks lie anywhere, none used twice while they last."""
    order: IntArray = rng.permutation(cache.num_blocks).astype(np.int64)
    pieces = []
    start = 0
    for num_new, num_computed in sizes:
        count = -(-(num_new + num_computed) // cache.block_size)
        tokens: IntArray = rng.integers(0, decoder.model.vocab_size, num_new, dtype=np.int64)
        blocks = order.take(np.arange(start, start + count), mode="wrap")
        pieces.append(Piece(tokens, num_computed, blocks))
        start += count
    return pieces


def _sizes(point: Point) -> list[tuple[int, int]]:
    """Pieces of (new, computed) tokens of the batch in which a part is timed."""
    table, first, second = point
    if table == "dense" and first > _DECODES_UP_TO:
        return [(first, 0)]
    if table in CURVES:
        return [(1, _CONTEXT_BEFORE)] * first
    if table == "prefill_attention":
        return [(first, second)]
    if table in {MIXED, SKEWED_MIX}:  # a chunk without earlier context beside decodes
        contexts = [first] * second if table == MIXED else skewed_contexts(first, second)
        return [*((1, context - 1) for context in contexts), (first, 0)]
    contexts = skewed_contexts(second, first) if table == SKEW else [second] * first
    return [(1, context - 1) for context in contexts]


def _all_layers(
    decoder: Decoder, query: torch.Tensor, cache: PagedKVCache, plan: Any
) -> torch.Tensor:
    out = query
    for number in range(len(decoder.layers)):
        out = decoder.attention.run(number, query, cache, plan)
    return out
