"""Timings to a profile: tables, residuals, held-out errors, and what the measuring was like."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from calibration.bench.axes import TableAxes
from calibration.bench.held_out import (
    HeldOutStep,
    error_figures,
    region,
    skew_region,
    summarise,
)
from calibration.bench.plan import CalibrationPlan
from calibration.bench.points import MIXED, TABLES, Point
from calibration.bench.samples import SampleStore
from calibration.bench.skewed_contexts import skewed_contexts
from calibration.decode_skew import SkewCase, fit_shares, skew_errors
from calibration.interpolation import Grid
from calibration.profile_cost import ProfileCost
from calibration.profile_format import Profile, ProfileProvenance
from calibration.profile_tables import CurveTable, GridTable
from calibration.step_shape import StepShape

_US = 1e6
_DIGITS = 6
_UNSETTLED_NAMED = 20


def make_profile(
    plan: CalibrationPlan, store: SampleStore, provenance: ProfileProvenance
) -> Profile:
    """Return the profile of a plan whose table points all have samples, without its `fit`."""
    alone, beside = skew_cases(plan, store)
    dense, logits = (_curve(plan.axes_of(name), store) for name in TABLES[:2])
    prefill, decode = (_grid(plan.axes_of(name), store) for name in TABLES[2:])
    decode_axes = plan.axes_of("decode_attention")
    most = max(point.first * point.second for point in decode_axes.points())
    is_full = len(decode_axes.points()) == len(decode_axes.rows) * len(decode_axes.columns)
    return Profile(
        provenance=provenance,
        dense=_named(dense, "num_tokens"),
        logits=_named(logits, "num_logits"),
        prefill_attention=_axes_named(prefill, "new_tokens", "computed_tokens"),
        decode_attention=_axes_named(decode, "num_decodes", "mean_context"),
        max_decode_context_tokens=None if is_full else float(most),
        decode_skew=fit_shares(alone),
        decode_skew_beside_chunks=fit_shares(beside),
    )


def skew_cases(plan: CalibrationPlan, store: SampleStore) -> tuple[list[SkewCase], list[SkewCase]]:
    """Return the timed batches of unlike contexts: decodes alone, and beside chunks."""
    axes = plan.axes_of("decode_attention")
    grid = Grid(axes.rows, axes.columns, axes.times(store.time_s))

    def case(count: int, mean: int, time_s: float) -> SkewCase:
        longest = max(skewed_contexts(mean, count))
        return SkewCase(count, time_s, grid.at(count, mean), grid.at(count, longest))

    alone = [
        case(point.first, point.second, store.time_s(point))
        for point in plan.skew
        if point in store.samples
    ]
    beside = []
    for point in plan.skewed_mixes:
        even = Point(MIXED, point.first, point.second)
        if point in store.samples and even in store.samples:
            found = case(point.second, point.first, 0.0)
            added = store.time_s(point) - store.time_s(even)
            beside.append(found._replace(time=found.even_time + added))
    return alone, beside


def held_out_steps(
    profile: Profile, plan: CalibrationPlan, store: SampleStore, shapes: Sequence[StepShape]
) -> list[HeldOutStep]:
    """Return the whole steps that were timed, each beside the profile's prediction."""
    cost = ProfileCost(profile)
    return [
        HeldOutStep(region(shape), store.time_s(point), cost.step_time_s(shape), skew_region(shape))
        for point, shape in zip(plan.held_out, shapes, strict=True)
        if point in store.samples
    ]


def describe_fit(
    profile: Profile,
    plan: CalibrationPlan,
    store: SampleStore,
    shapes: Sequence[StepShape],
) -> dict[str, Any]:
    """Return the profile's `fit`: how good it is, by what was measured.

    Each table's entry are the errors of interpolation at points off its grid, before rows were
    added for those that it missed.
    """
    steps = held_out_steps(profile, plan, store, shapes)
    alone, beside = skew_cases(plan, store)
    fit: dict[str, Any] = {
        "method": "clipped means of timings in random order; held-out whole steps are in no table",
        "measuring": _measuring(plan, store),
        **{axes.table: error_figures(list(axes.probes.values())) for axes in plan.axes},
        "decode_skew": skew_errors(alone, profile.decode_skew),
        "decode_skew_beside_chunks": skew_errors(beside, profile.decode_skew_beside_chunks),
        "operations_us": _operations(plan, store),
        "checks": _checks(plan, store),
    }
    if steps:
        fit["held_out"] = summarise(steps)
    return fit


def _curve(axes: TableAxes, store: SampleStore) -> CurveTable:
    times = [line[0] for line in axes.times(store.time_s)]
    return CurveTable("", tuple(map(float, axes.rows)), _rounded(times))


def _grid(axes: TableAxes, store: SampleStore) -> GridTable:
    rows, times = axes.read_rows(store.time_s)
    columns = tuple(map(float, axes.columns))
    return GridTable("", "", tuple(map(float, rows)), columns, tuple(map(_rounded, times)))


def _named(table: CurveTable, axis: str) -> CurveTable:
    return CurveTable(axis, table.axis, table.time_us)


def _axes_named(table: GridTable, row: str, column: str) -> GridTable:
    return GridTable(row, column, table.rows, table.columns, table.time_us)


def _rounded(times_s: Sequence[float]) -> tuple[float, ...]:
    return tuple(float(f"{time_s * _US:.{_DIGITS}g}") for time_s in times_s)


def _measuring(plan: CalibrationPlan, store: SampleStore) -> dict[str, Any]:
    points = [point for point in plan.points() if point in store.samples]
    found = [store.statistics(point) for point in points]
    known = [statistics for statistics in found if statistics is not None]
    unsettled = [
        str(point) for point, s in zip(points, found, strict=True) if s and not s.is_settled
    ]
    # One sample has no scatter: nothing is known of its noise.
    noise = np.array([s.noise for s in known if s.num_samples > 1] or [np.nan])
    drifts = np.array([store.drift(point) for axes in plan.axes for point in axes.points()])
    return {
        "points": len(points),
        "samples": len(store.order),
        "disturbed_samples": sum(statistics.num_disturbed for statistics in known),
        "noise_p50": _known(np.percentile(noise, 50)),
        "noise_p90": _known(np.percentile(noise, 90)),
        "lost_share": _short(store.lost_share()),
        "clipped_share": _short(store.clipped_share()),
        "median_drift": _short(np.median(drifts)),
        "num_unsettled": len(unsettled),
        "unsettled": unsettled[:_UNSETTLED_NAMED],
        "limits": {
            "max_num_batched_tokens": plan.limits.max_num_batched_tokens,
            "max_num_seqs": plan.limits.max_num_seqs,
            "max_model_len": plan.limits.max_model_len,
            "max_context_tokens": plan.limits.max_context_tokens,
        },
    }


def _operations(plan: CalibrationPlan, store: SampleStore) -> dict[str, dict[str, float]]:
    return {
        name: {
            str(point.first): _short(store.time_s(point) * _US)
            for point in points
            if point in store.samples
        }
        for name, points in plan.operations.items()
    }


def _checks(plan: CalibrationPlan, store: SampleStore) -> dict[str, float]:
    """Ratios that are 1 if the profile's form is right."""
    sums = {
        count: [points[i] for points in plan.operations.values()]
        for i, count in enumerate(_counts(plan))
    }
    ratios = {
        "mixed_over_sum_of_parts": [_ratio(store, [a], [b, c]) for a, b, c in plan.mixed],
        "operations_over_dense": [
            _ratio(store, points, [Point("dense", count)]) for count, points in sums.items()
        ],
    }
    means = {name: [v for v in values if v is not None] for name, values in ratios.items()}
    return {name: _short(np.mean(values)) for name, values in means.items() if values}


def _counts(plan: CalibrationPlan) -> list[int]:
    first: list[Point] = next(iter(plan.operations.values()), [])
    return [point.first for point in first]


def _ratio(store: SampleStore, above: Sequence[Point], below: Sequence[Point]) -> float | None:
    if any(point not in store.samples for point in (*above, *below)):
        return None
    return sum(map(store.time_s, above)) / sum(map(store.time_s, below))


def _known(value: float | np.floating[Any]) -> float | None:
    return None if np.isnan(value) else _short(value)


def _short(value: float | np.floating[Any]) -> float:
    return float(f"{float(value):.4g}")
