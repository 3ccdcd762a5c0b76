"""Reads a Parquet table of kernel times, and checks it before anything is built on it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from calibration.errors import CalibrationError

KernelColumns = dict[str, NDArray[Any]]
"""Columns of a table by name; `latency` is milliseconds of one call."""

_MIN_MS, _MAX_MS = 2e-4, 6e4
"""No kernel launch takes less than 0.2 us, none of these calls more than a minute."""

_AGREEMENT = 1.25
"""Repeated timings of one call may differ by this factor; beyond it one of them is wrong."""


def read_kernel_table(
    file: Path, keys: Sequence[str], defaults: dict[str, int] | None = None
) -> KernelColumns:
    """Return `keys` and `latency` of a table.

    Args:
        file: the Parquet file.
        keys: columns that name a call; together they name it once only.
        defaults: values of columns that older tables lack.

    Raises:
        CalibrationError: no such file, a column is missing, a call stands there twice with unlike
            times, a time is missing, negative, or in another unit than milliseconds.
    """
    defaults = defaults or {}
    columns = _read(file, keys, defaults)
    _check_times(file, columns["latency"])
    return _merge_repeats(file, columns, keys)


def _read(file: Path, keys: Sequence[str], defaults: dict[str, int]) -> KernelColumns:
    try:
        present = set(pq.read_schema(file).names)
        missing = [key for key in (*keys, "latency") if key not in present and key not in defaults]
        if missing:
            raise CalibrationError(
                f"{file}: column {missing[0]} is missing; it has {', '.join(sorted(present))}"
            )
        table = pq.read_table(file, columns=[k for k in (*keys, "latency") if k in present])
    except (OSError, ValueError) as error:
        if isinstance(error, CalibrationError):
            raise
        raise CalibrationError(f"{file}: can't be read as a Parquet table: {error}") from error
    if table.num_rows == 0:
        raise CalibrationError(f"{file}: has no rows")
    columns = {name: _array(table.column(name)) for name in table.column_names}
    for key in keys:
        if key not in columns:
            columns[key] = np.full(table.num_rows, defaults[key], dtype=np.int64)
    return columns


def _array(column: Any) -> NDArray[Any]:
    values: NDArray[Any] = column.to_numpy()
    return values.astype(str) if values.dtype == object else values


def _check_times(file: Path, latency: NDArray[Any]) -> None:
    if not np.issubdtype(latency.dtype, np.floating):
        raise CalibrationError(f"{file}: column latency is not a number in every row")
    if not bool(np.all(np.isfinite(latency))):
        row = int(np.flatnonzero(~np.isfinite(latency))[0])
        raise CalibrationError(f"{file}: latency of row {row} is {latency[row]}; it must be finite")
    low, high = float(latency.min()), float(latency.max())
    if low <= 0:
        raise CalibrationError(f"{file}: a latency is {low:g} ms; a measured time is above 0")
    if low < _MIN_MS:
        raise CalibrationError(
            f"{file}: a latency is {low:g} ms, less than a launch takes; are the times seconds?"
        )
    if high > _MAX_MS or low > 1.0:
        raise CalibrationError(
            f"{file}: latencies are {low:g} to {high:g} ms; are the times microseconds?"
        )


def _merge_repeats(file: Path, columns: KernelColumns, keys: Sequence[str]) -> KernelColumns:
    """Return the columns with each call once: repeated timings that agree become their mean."""
    codes = np.zeros(len(columns["latency"]), dtype=np.int64)
    for key in keys:
        _, code = np.unique(columns[key], return_inverse=True)
        codes = codes * (int(code.max()) + 1) + code
    _, first, call, counts = np.unique(
        codes, return_index=True, return_inverse=True, return_counts=True
    )
    if int(counts.max()) == 1:
        return columns
    latency = columns["latency"]
    low, high = np.full(len(first), np.inf), np.zeros(len(first))
    np.minimum.at(low, call, latency)
    np.maximum.at(high, call, latency)
    if bool(np.any(high > _AGREEMENT * low)):
        row = int(first[np.argmax(high > _AGREEMENT * low)])
        named = ", ".join(f"{key}={columns[key][row]}" for key in keys)
        raise CalibrationError(
            f"{file}: {named} stands there more than once, with times that differ by more than"
            f" {100 * (_AGREEMENT - 1):.0f} %"
        )
    merged = {name: column[first] for name, column in columns.items()}
    merged["latency"] = np.bincount(call, latency) / counts
    return merged
