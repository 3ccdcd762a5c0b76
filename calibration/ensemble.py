"""How far off a profile may be, as an ensemble of profiles that are all as likely.

Each member's tables are the profile's times a factor each: one for the tokens' part (dense and
logits), one for attention of chunks, one for attention of decodes, and one for the whole step.
Factors are lognormal with median 1. The first three have the size of the fit's own error, the
last that of everything the tables can't know: another engine release, clocks, cables.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from calibration.errors import CalibrationError
from calibration.profile_cost import ProfileCost
from calibration.profile_format import Profile
from calibration.profile_tables import BoxTable, CurveTable, GridTable

_LEFT_OUT_TO_KEPT = 0.25
"""Leaving a point out doubles the gap, and the error of a straight line goes with its square.

Not so the errors of a profile that was measured here: those are of probes in the middle of gaps."""

_LEAST_SIGMA = 0.005
_OF_MEAN = 1.25  # standard deviation of a normal error whose mean size is 1
_OF_STEP_SIGMA = 0.05
"""Of a whole step. `headway validate silicon` finds mean absolute TPOT errors of 2.4 % (60 rows of
Qwen3-32B on H100), 4.2 % (60 on B200) and 4.5 % (66 on H200): 3.7 % together, times `_OF_MEAN`."""


@dataclass(frozen=True, slots=True)
class ProfileUncertainty:
    """Standard deviations of the logarithm of each factor: nearly relative errors."""

    dense: float
    prefill_attention: float
    decode_attention: float
    step: float = _OF_STEP_SIGMA


def profile_uncertainty(profile: Profile) -> ProfileUncertainty:
    """Return the uncertainty that the profile's own fit errors imply.

    Raises:
        CalibrationError: the profile says nothing about its errors.
    """
    fit = profile.fit
    names = ("dense", "dense_shapes", "prefill_attention", "decode_attention")
    if not any(_num_points(fit, name) for name in names):
        raise CalibrationError(
            f"{profile.path}: its fit section has no errors, so there is nothing to make intervals"
            " from; measure it again with `headway calibrate`"
        )
    return ProfileUncertainty(
        dense=_sigma(fit, "dense", "dense_shapes"),
        prefill_attention=_sigma(fit, "prefill_attention"),
        decode_attention=_sigma(fit, "decode_attention"),
    )


def profile_ensemble(
    profile: Profile, num_members: int, rng: np.random.Generator
) -> list[ProfileCost]:
    """Return that many profiles drawn around the given one.

    Raises:
        CalibrationError: the profile says nothing about its errors.
    """
    sigma = profile_uncertainty(profile)
    sigmas = [sigma.dense, sigma.prefill_attention, sigma.decode_attention, sigma.step]
    draws = np.exp(rng.normal(0.0, sigmas, (num_members, len(sigmas))))
    return [ProfileCost(_scaled(profile, *map(float, factors))) for factors in draws]


def _num_points(fit: dict[str, Any], name: str) -> int:
    """How many points an error was taken from; an entry that does not say so counts."""
    entry = fit.get(name)
    return int(entry.get("num_points", 1)) if isinstance(entry, dict) else 0


def _sigma(fit: dict[str, Any], *names: str) -> float:
    means = [float(fit[name].get("mean", 0.0)) for name in names if isinstance(fit.get(name), dict)]
    kept = _LEFT_OUT_TO_KEPT if "left out" in str(fit.get("method")) else 1.0
    return max(kept * _OF_MEAN * float(np.hypot.reduce([0.0, *means])), _LEAST_SIGMA)


def _scaled(profile: Profile, dense: float, prefill: float, decode: float, step: float) -> Profile:
    beside = profile.decode_beside_chunks
    # The launch is part of every attention entry, so it may not outgrow the smaller of them.
    launch = min(prefill, decode) * step
    return replace(
        profile,
        dense=_curve(profile.dense, dense * step),
        logits=_curve(profile.logits, dense * step),
        prefill_attention=_grid(profile.prefill_attention, prefill * step),
        decode_attention=_grid(profile.decode_attention, decode * step),
        decode_beside_chunks=None if beside is None else _box(beside, decode * step),
        attention_launch_us=profile.attention_launch_us * launch,
        step_overhead_us=profile.step_overhead_us * step,
    )


def _curve(table: CurveTable, factor: float) -> CurveTable:
    return replace(table, time_us=tuple(factor * time_us for time_us in table.time_us))


def _grid(table: GridTable, factor: float) -> GridTable:
    times = tuple(tuple(factor * time_us for time_us in row) for row in table.time_us)
    return replace(table, time_us=times)


def _box(table: BoxTable, factor: float) -> BoxTable:
    times = tuple(
        tuple(tuple(factor * time_us for time_us in row) for row in layer)
        for layer in table.time_us
    )
    return replace(table, time_us=times)
