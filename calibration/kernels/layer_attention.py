"""Attention of all layers of a model: full, and to a window where a model has such layers."""

from dataclasses import dataclass
from functools import reduce

import numpy as np

from calibration.cost_model import FloatArray
from calibration.kernels.attention import AttentionTables, DecodeGrid, Heads
from calibration.kernels.chunk_attention import chunk_times_us, launch_time_us
from calibration.kernels.curves import Curve
from calibration.kernels.errors_of_fit import grid_leave_out_errors


@dataclass(frozen=True, slots=True)
class _Kind:
    """Layers whose attention is alike, and its kernels."""

    num_layers: int
    heads: Heads
    prompt: Curve
    decode: DecodeGrid


class LayerAttention:
    """The sum over a model's layers; axes are those that all kinds of layers were timed at."""

    def __init__(self, tables: AttentionTables, layers: list[tuple[int, Heads]]) -> None:
        self._kinds = [
            _Kind(count, heads, tables.prompt(heads), tables.decode(heads))
            for count, heads in layers
        ]
        self.new = _common([kind.prompt.axis for kind in self._kinds])
        self.batch = _common([kind.decode.batch for kind in self._kinds])
        self.context = _common([kind.decode.context for kind in self._kinds])

    def prefill_us(self, computed: FloatArray) -> FloatArray:
        """Return times over new x computed tokens."""
        total = np.zeros((len(self.new), len(computed)))
        for kind in self._kinds:
            # What lies before the window costs nothing.
            seen = np.minimum(computed, kind.heads.window) if kind.heads.window else computed
            total += kind.num_layers * chunk_times_us(
                kind.prompt, kind.decode.at_batch_one(), self.new, seen
            )
        return total

    def decode_us(self) -> FloatArray:
        """Return times over batch x context, gaps filled."""
        total = np.zeros((len(self.batch), len(self.context)))
        for kind in self._kinds:
            rows = np.isin(kind.decode.batch, self.batch)
            columns = np.isin(kind.decode.context, self.context)
            total += kind.num_layers * kind.decode.filled()[rows][:, columns]
        return total

    def launch_us(self) -> float:
        """Return the fixed part of a step's attention, rounded down: no entry is below it."""
        least = (
            kind.num_layers
            * min(launch_time_us(kind.prompt), float(np.nanmin(kind.decode.time_us)))
            for kind in self._kinds
        )
        return float(np.floor(sum(least)))

    @property
    def max_context_tokens(self) -> float:
        """The most KV entries, of all requests together, that were measured at once."""
        return min(kind.decode.max_context_tokens for kind in self._kinds)

    def prefill_errors(self) -> FloatArray:
        """Return leave-one-out errors of prompts."""
        return np.concatenate([kind.prompt.leave_out_errors() for kind in self._kinds])

    def decode_errors(self) -> FloatArray:
        """Return leave-one-out errors of decodes."""
        return np.concatenate(
            [
                grid_leave_out_errors(kind.decode.context, kind.decode.time_us)
                for kind in self._kinds
            ]
        )


def _common(axes: list[FloatArray]) -> FloatArray:
    return np.asarray(reduce(np.intersect1d, axes), dtype=np.float64)
