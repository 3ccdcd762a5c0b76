"""Attention tables from timings of batches (chunk, its context, decodes, their context)."""

from dataclasses import dataclass

import numpy as np

from calibration.cost_model import FloatArray
from calibration.kernels.curves import Curve
from calibration.layerwise.files import LayerwiseFiles

_LEAST_US = 0.05  # what decodes add is a difference of two timings: noise may make it 0

Times = dict[tuple[int, int, int, int], float]
"""(chunk, its context, decodes, their context) -> microseconds of one layer."""


@dataclass(frozen=True, slots=True)
class TimedGrid:
    """Full table of microseconds of one layer over rows x columns.

    `leave_out_errors` are of the measured cells only: each inner one interpolated in its row.
    """

    rows: FloatArray
    columns: FloatArray
    time_us: FloatArray
    leave_out_errors: FloatArray


def read_attention(files: LayerwiseFiles) -> Times:
    """Return all timings of the attention file."""
    keys = ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode")
    return {row[:4]: row[4] for row in files.rows("attention", keys)}


def prefill_grid(times: Times) -> TimedGrid:
    """Return times over chunk x earlier context, of batches without decodes.

    The profiler times two meshes with unlike contexts; a chunk's gaps are filled along its own
    contexts, over which attention is a straight line.
    """
    known = {(c, k): t for (c, k, n, _), t in times.items() if n == 0 and c > 0}
    return _filled(known)


def decode_grid(times: Times) -> TimedGrid:
    """Return times over decodes x their context, of batches without chunks."""
    known = {(n, k): t for (c, _, n, k), t in times.items() if c == 0 and n > 0}
    return _filled(known)


def decode_beside_chunks(times: Times) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return (chunks, decodes, contexts, microseconds that decodes add to a chunk without context).

    From one full mesh of the profiler's: the one that reaches the shortest contexts.
    """
    alone = {c: t for (c, k, n, _), t in times.items() if n == 0 and k == 0}
    mixed = {(c, n, k): t for (c, kp, n, k), t in times.items() if c in alone and n and kp == 0}
    chunks, columns = _full_mesh({(c, k) for c, _, k in mixed})
    decodes = sorted(set.intersection(*({n for d, n, _ in mixed if d == c} for c in chunks)))
    added = [
        [[max(mixed[c, n, k] - alone[c], _LEAST_US) for k in columns] for n in decodes]
        for c in chunks
    ]
    return _array(chunks), _array(decodes), _array(columns), np.array(added)


def _full_mesh(cells: set[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """Return rows and columns that are all there, from the shortest column and then the most."""
    by_row = {row: frozenset(k for r, k in cells if r == row) for row, _ in cells}
    meshes = {
        columns: sorted(row for row, own in by_row.items() if columns <= own)
        for columns in by_row.values()
    }
    columns, rows = max(
        meshes.items(), key=lambda mesh: (-min(mesh[0]), len(mesh[0]) * len(mesh[1]))
    )
    return rows, sorted(columns)


def _array(axis: list[int]) -> FloatArray:
    return np.array(axis, dtype=np.float64)


def _filled(known: dict[tuple[int, int], float]) -> TimedGrid:
    rows = sorted({row for row, _ in known})
    columns = sorted({column for _, column in known})
    at = np.array(columns, dtype=np.float64)
    curves = [
        _curve({column: time_us for (r, column), time_us in known.items() if r == row})
        for row in rows
    ]
    errors = np.concatenate([curve.leave_out_errors() for curve in curves])
    times = np.array([curve.at(at) for curve in curves])
    return TimedGrid(np.array(rows, dtype=np.float64), at, times, errors)


def _curve(times: dict[int, float]) -> Curve:
    columns = sorted(times)
    return Curve(_array(columns), np.array([times[column] for column in columns]))
