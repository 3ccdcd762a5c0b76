"""Attention kernels: of whole prompts (context), and of one token a request (generation)."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibration.cost_model import FloatArray
from calibration.errors import UnmeasuredError
from calibration.interpolation import Line
from calibration.kernels.curves import Curve, settled
from calibration.kernels.reading import KernelColumns, read_kernel_table

_US_PER_MS = 1e3
_HEADS = ("num_heads", "num_key_value_heads", "head_dim", "kv_cache_dtype", "window_size")
_CALL = (*_HEADS, "batch_size", "isl", "step")
_MIN_POINTS = 2


@dataclass(frozen=True, slots=True)
class Heads:
    """Attention of one layer on one GPU.

    Attributes:
        query: query heads on this GPU.
        kv: key-value heads on this GPU.
        dim: of a head.
        kv_dtype: format of the cache, bfloat16 or fp8.
        window: tokens that a token may see, 0: all.
    """

    query: int
    kv: int
    dim: int
    kv_dtype: str = "bfloat16"
    window: int = 0


@dataclass(frozen=True, slots=True)
class DecodeGrid:
    """Times of one layer over batch x context; NaN where not measured."""

    batch: FloatArray
    context: FloatArray
    time_us: FloatArray

    def filled(self) -> FloatArray:
        """Return the times with every gap filled by its row's last line: memory traffic."""
        times = self.time_us.copy()
        for row in times:
            known = np.isfinite(row)
            if not bool(known.all()):
                line = Line(self.context[known].tolist(), row[known].tolist())
                row[~known] = line.at_each(self.context[~known])
        return times

    @property
    def max_context_tokens(self) -> float:
        """The most KV entries, of all requests together, that were measured at once."""
        total = self.batch[:, None] * self.context[None, :]
        return float(total[np.isfinite(self.time_us)].max())

    def at_batch_one(self) -> Curve:
        """Return the times of a single request over its context."""
        known = np.isfinite(self.time_us[0])
        return Curve(self.context[known], self.time_us[0][known])


class AttentionTables:
    """Both tables of one GPU and engine version."""

    def __init__(self, context_file: Path, generation_file: Path) -> None:
        defaults = {"window_size": 0}
        self._context_file = context_file
        self._generation_file = generation_file
        self._context = read_kernel_table(context_file, _CALL, defaults)
        self._generation = read_kernel_table(generation_file, _CALL, defaults)

    def prompt(self, heads: Heads) -> Curve:
        """Return the times of one whole prompt over its length, one layer.

        Raises:
            UnmeasuredError: such heads were not measured.
        """
        return _by_heads(self._prompt, heads, self._context, self._context_file)

    def decode(self, heads: Heads) -> DecodeGrid:
        """Return the times of one token a request, one layer; contexts count the new token.

        Raises:
            UnmeasuredError: such heads were not measured.
        """
        near = _neighbours(heads, self._generation, self._generation_file)
        grids = [self._decode(_with_query(heads, query)) for query, _ in near]
        if len(grids) == 1:
            return grids[0]
        low, high = grids
        batch = np.intersect1d(low.batch, high.batch)
        context = np.intersect1d(low.context, high.context)
        times = sum(
            share * grid.time_us[np.isin(grid.batch, batch)][:, np.isin(grid.context, context)]
            for (_, share), grid in zip(near, grids, strict=True)
        )
        return DecodeGrid(batch, context, np.asarray(times))

    def _prompt(self, heads: Heads) -> Curve:
        rows = _rows(self._context, heads) & (self._context["batch_size"] == 1)
        rows &= self._context["step"] == 0
        axis = self._context["isl"][rows].astype(np.float64)
        order = np.argsort(axis)
        times = self._context["latency"][rows] * _US_PER_MS
        _check_points(len(axis), heads, self._context_file)
        return Curve(axis[order], settled(times[order]))

    def _decode(self, heads: Heads) -> DecodeGrid:
        rows = _rows(self._generation, heads) & (self._generation["isl"] == 1)
        batch, i = np.unique(self._generation["batch_size"][rows], return_inverse=True)
        context, j = np.unique(self._generation["step"][rows] + 1, return_inverse=True)
        _check_points(min(len(batch), len(context)), heads, self._generation_file)
        times = np.full((len(batch), len(context)), np.nan)
        times[i, j] = self._generation["latency"][rows] * _US_PER_MS
        enough = np.isfinite(times).sum(axis=1) >= _MIN_POINTS
        return DecodeGrid(
            batch[enough].astype(float), context.astype(float), settled(times[enough])
        )


def _rows(columns: KernelColumns, heads: Heads) -> NDArray[Any]:
    kv = columns["num_key_value_heads"]
    rows: NDArray[Any] = (columns["num_heads"] == heads.query) & (kv == heads.kv)
    rows &= columns["head_dim"] == heads.dim
    rows &= columns["kv_cache_dtype"] == heads.kv_dtype
    rows &= columns["window_size"] == heads.window
    return rows


def _by_heads(read: Any, heads: Heads, columns: KernelColumns, file: Path) -> Curve:
    near = _neighbours(heads, columns, file)
    curves: list[Curve] = [read(_with_query(heads, query)) for query, _ in near]
    if len(curves) == 1:
        return curves[0]
    axis = np.intersect1d(curves[0].axis, curves[1].axis)
    times = sum(
        share * curve.time_us[np.isin(curve.axis, axis)]
        for (_, share), curve in zip(near, curves, strict=True)
    )
    return Curve(axis, np.asarray(times))


def _neighbours(heads: Heads, columns: KernelColumns, file: Path) -> list[tuple[int, float]]:
    """Return the measured numbers of query heads around the asked one, with their weights.

    Kernels were timed for the heads of common models; a number between two of them (28, 14) is
    interpolated: arithmetic and traffic are straight lines in the query heads.
    """
    rows = _rows_but_query(columns, heads)
    numbers = np.unique(columns["num_heads"][rows])
    if heads.query in numbers:
        return [(heads.query, 1.0)]
    below, above = numbers[numbers < heads.query], numbers[numbers > heads.query]
    if not len(below) or not len(above):
        raise UnmeasuredError(f"{file}: {_described(heads)} were not measured")
    low, high = int(below.max()), int(above.min())
    share = (heads.query - low) / (high - low)
    return [(low, 1.0 - share), (high, share)]


def _rows_but_query(columns: KernelColumns, heads: Heads) -> NDArray[Any]:
    rows: NDArray[Any] = columns["num_key_value_heads"] == heads.kv
    rows &= columns["head_dim"] == heads.dim
    rows &= columns["kv_cache_dtype"] == heads.kv_dtype
    rows &= columns["window_size"] == heads.window
    return rows


def _with_query(heads: Heads, query: int) -> Heads:
    return Heads(query, heads.kv, heads.dim, heads.kv_dtype, heads.window)


def _check_points(num_points: int, heads: Heads, file: Path) -> None:
    if num_points < _MIN_POINTS:
        raise UnmeasuredError(f"{file}: {_described(heads)} were not measured")


def _described(heads: Heads) -> str:
    window = f", window {heads.window}" if heads.window else ""
    return (
        f"{heads.query} query heads on {heads.kv} key-value heads of {heads.dim},"
        f" {heads.kv_dtype} cache{window}"
    )
