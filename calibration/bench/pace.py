"""How fast the machine is now, against the time when its profile was measured.

Others on the machine take memory bandwidth and cache: a step that reads all weights for a few rows
gets slower by more than a step of many. So the pace is taken at a few points of the profile's own
table of products, from one row to many.
"""

from dataclasses import replace

from calibration.bench.points import Point
from calibration.profile_format import Profile
from calibration.profile_tables import BoxTable, CurveTable, GridTable

_DENSE_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


def pace_points(profile: Profile) -> dict[Point, float]:
    """Return the points to time, fewest rows first, with the profile's own seconds for them."""
    dense = profile.dense
    rows = sorted({_nearest(dense.axis, size) for size in _DENSE_SIZES})
    return {Point("dense", int(dense.axis[row])): dense.time_us[row] * 1e-6 for row in rows}


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
