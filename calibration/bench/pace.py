"""How fast the machine is now, against the time when its profile was measured.

Others on the machine take memory bandwidth and cache. How much longer work takes for it is seen at
a few points of the profile's own tables, from one token to some.
"""

from dataclasses import replace

from calibration.bench.points import Point
from calibration.profile_format import Profile
from calibration.profile_tables import BoxTable, CurveTable, GridTable

_DENSE_SIZES = (1, 2, 4, 16, 64)
_LOGITS, _CHUNK, _DECODES, _CONTEXT = 4, 64, 4, 256


def pace_points(profile: Profile) -> dict[Point, float]:
    """Return the points to time, with the profile's own seconds for them."""
    dense, logits = profile.dense, profile.logits
    chunks, decodes = profile.prefill_attention, profile.decode_attention
    rows = sorted({_nearest(dense.axis, size) for size in _DENSE_SIZES})
    points = {Point("dense", int(dense.axis[row])): dense.time_us[row] * 1e-6 for row in rows}
    row = _nearest(logits.axis, _LOGITS)
    points[Point("logits", int(logits.axis[row]))] = logits.time_us[row] * 1e-6
    for name, table, first, second in (
        ("prefill_attention", chunks, _CHUNK, 0),
        ("decode_attention", decodes, _DECODES, _CONTEXT),
    ):
        row, column = _nearest(table.rows, first), _nearest(table.columns, second)
        point = Point(name, int(table.rows[row]), int(table.columns[column]))
        points[point] = table.time_us[row][column] * 1e-6
    return points


def scaled(profile: Profile, factor: float) -> Profile:
    """Return the profile with every time in it multiplied."""
    beside = profile.decode_beside_chunks
    return replace(
        profile,
        dense=_scaled_curve(profile.dense, [factor] * len(profile.dense.axis)),
        logits=_scaled_curve(profile.logits, [factor] * len(profile.logits.axis)),
        prefill_attention=_scaled_grid(profile.prefill_attention, factor),
        decode_attention=_scaled_grid(profile.decode_attention, factor),
        decode_beside_chunks=None if beside is None else _scaled_box(beside, factor),
        attention_launch_us=profile.attention_launch_us * factor,
        step_overhead_us=profile.step_overhead_us * factor,
    )


def _nearest(axis: tuple[float, ...], value: float) -> int:
    return min(range(len(axis)), key=lambda i: abs(axis[i] - value))


def _scaled_curve(table: CurveTable, factors: list[float]) -> CurveTable:
    times = tuple(t * factor for t, factor in zip(table.time_us, factors, strict=True))
    return replace(table, time_us=times)


def _scaled_grid(table: GridTable, factor: float) -> GridTable:
    times = tuple(tuple(t * factor for t in row) for row in table.time_us)
    return replace(table, time_us=times)


def _scaled_box(table: BoxTable, factor: float) -> BoxTable:
    times = tuple(tuple(tuple(t * factor for t in row) for row in layer) for layer in table.time_us)
    return replace(table, time_us=times)
