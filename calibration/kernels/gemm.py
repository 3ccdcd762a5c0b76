"""Matrix products: [m, k] x [k, n], measured over a grid of all three sizes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibration.cost_model import FloatArray
from calibration.errors import UnmeasuredError
from calibration.kernels.curves import Curve, settled
from calibration.kernels.reading import read_kernel_table

_US_PER_MS = 1e3
_MIN_POINTS = 4


@dataclass(frozen=True, slots=True)
class GemmTable:
    """Products of one format of weights; `time_us[i, j, l]` at m, n, k; NaN where not measured."""

    file: str
    dtype: str
    m: FloatArray
    n: FloatArray
    k: FloatArray
    time_us: FloatArray

    def curve(self, n: int, k: int) -> Curve:
        """Return the times over m of a product with n outputs and k inputs.

        Bilinear in (n, k): exact for time = a + b n + c k + d n k, which covers work and traffic
        of a product. Beyond the grid (a vocabulary) times are in proportion: the product could be
        cut into parts of the largest measured size.

        Raises:
            UnmeasuredError: too few measured points around (n, k).
        """
        beyond = max(n / self.n[-1], 1.0) * max(k / self.k[-1], 1.0)
        i, share_n = _cell(self.n, min(n, self.n[-1]))
        j, share_k = _cell(self.k, min(k, self.k[-1]))
        low = _between(self.time_us[:, i, j], self.time_us[:, i + 1, j], share_n)
        high = _between(self.time_us[:, i, j + 1], self.time_us[:, i + 1, j + 1], share_n)
        times = beyond * _between(low, high, share_k)
        known = np.isfinite(times)
        if int(known.sum()) < _MIN_POINTS:
            raise UnmeasuredError(
                f"{self.file}: {self.dtype} products with {n} outputs and {k} inputs have"
                f" {int(known.sum())} measured points around them; at least {_MIN_POINTS} are due"
            )
        return Curve(self.m[known], settled(times[known]))

    def shape_errors(self) -> FloatArray:
        """Return signed relative errors of products interpolated from their neighbours in n and k.

        Each measured (n, k) inside the grid is left out in turn, all m.
        """
        errors = [
            _errors(self.n, np.moveaxis(self.time_us, 1, 0)),
            _errors(self.k, np.moveaxis(self.time_us, 2, 0)),
        ]
        found = np.concatenate(errors)
        return found[np.isfinite(found)]


def read_gemm(file: Path) -> dict[str, GemmTable]:
    """Return the products of a table by their format (bfloat16, fp8, fp8_block, nvfp4).

    Raises:
        CalibrationError: the table can't be used.
    """
    columns = read_kernel_table(file, ("gemm_dtype", "m", "n", "k"))
    dtypes = np.unique(columns["gemm_dtype"]).tolist()
    return {dtype: _table(str(file), dtype, columns) for dtype in dtypes}


def _table(file: str, dtype: str, columns: dict[str, NDArray[Any]]) -> GemmTable:
    rows = columns["gemm_dtype"] == dtype
    axes, places = zip(
        *(np.unique(columns[key][rows], return_inverse=True) for key in ("m", "n", "k")),
        strict=True,
    )
    times = np.full(tuple(len(axis) for axis in axes), np.nan)
    times[places] = columns["latency"][rows] * _US_PER_MS
    m, n, k = (axis.astype(np.float64) for axis in axes)
    return GemmTable(file, dtype, m, n, k, times)


def _cell(axis: FloatArray, value: float) -> tuple[int, float]:
    """Return the left neighbour and how far `value` lies towards the right one (1: there)."""
    i = int(np.clip(np.searchsorted(axis, value, side="right") - 1, 0, len(axis) - 2))
    return i, float((value - axis[i]) / (axis[i + 1] - axis[i]))


def _between(low: FloatArray, high: FloatArray, share: float) -> FloatArray:
    if share == 0.0:
        return low
    if share == 1.0:
        return high
    return low + share * (high - low)


def _errors(axis: FloatArray, times: FloatArray) -> FloatArray:
    """Return the errors of leaving out each inner point along the first axis of `times`."""
    share = ((axis[1:-1] - axis[:-2]) / (axis[2:] - axis[:-2]))[:, None, None]
    guess = times[:-2] + share * (times[2:] - times[:-2])
    result: FloatArray = (guess / times[1:-1] - 1.0).ravel()
    return result
