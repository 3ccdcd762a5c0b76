"""Ensembles of profiles: their spread is the fit's, and every member is a profile."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from calibration import (
    CalibrationError,
    ProfileCost,
    StepShape,
    decode_shape,
    parse_profile,
    profile_ensemble,
    profile_uncertainty,
)
from calibration.profile_format import Profile
from tests.calibration.cost_models import profile_document, second_document


def profile(**means: float) -> Profile:
    fit: dict[str, Any] = {n: {"mean": mean, "num_points": 10} for n, mean in means.items()}
    fit["method"] = "each measured point left out and interpolated from its neighbours"
    return replace(parse_profile(second_document(), "p"), fit=fit)


def draw(base: Profile, num_members: int, seed: int = 1) -> list[ProfileCost]:
    return profile_ensemble(base, num_members, np.random.Generator(np.random.PCG64(seed)))


def test_a_quarter_of_the_left_out_error_remains() -> None:
    """Halving the gap between points quarters the error of a chord of a parabola.

    The standard deviation of a normal error is sqrt(pi / 2) times its mean size.
    """
    left_out = profile(dense=0.08, dense_shapes=0.06, decode_attention=0.04)
    found = profile_uncertainty(left_out)
    assert found.dense == pytest.approx(0.25 * 0.1 * (np.pi / 2) ** 0.5, rel=0.01)
    assert found.decode_attention == pytest.approx(0.01 * (np.pi / 2) ** 0.5, rel=0.01)
    assert found.prefill_attention > 0
    probed = replace(left_out, fit={**left_out.fit, "method": "clipped means of timings"})
    assert profile_uncertainty(probed).dense == pytest.approx(4 * found.dense)


def test_the_spread_of_steps_is_that_of_the_factors() -> None:
    base = profile(dense=0.2, decode_attention=0.2, prefill_attention=0.2)
    sigma = profile_uncertainty(base)
    shape = decode_shape(64, 64 * 4000)
    times = np.array([cost.step_time_s(shape) for cost in draw(base, 4000)])
    cost = ProfileCost(base)
    whole = cost.step_time_s(shape)
    attention = 1e-6 * (40 + 0.01 * 64 * 4000)
    fixed = 1e-6 * 100
    dense = whole - attention - fixed
    parts = np.hypot(sigma.dense * dense, sigma.decode_attention * attention) / whole
    assert times.std() / whole == pytest.approx(np.hypot(parts, sigma.step), rel=0.06)
    assert np.median(times) == pytest.approx(whole, rel=0.005)


def test_the_same_seed_draws_the_same_members() -> None:
    base, shape = profile(dense=0.1), StepShape(600, 3, 2, 2000, ((598, 100),))
    first, again, other = (draw(base, 3, seed) for seed in (7, 7, 8))
    assert [c.step_time_s(shape) for c in first] == [c.step_time_s(shape) for c in again]
    assert [c.step_time_s(shape) for c in first] != [c.step_time_s(shape) for c in other]


def test_members_can_be_written_as_profiles() -> None:
    for cost in draw(profile(dense=0.3, decode_attention=0.3, prefill_attention=0.3), 50):
        parse_profile(cost.profile.to_json(), "member")


def test_a_profile_without_errors_has_no_ensemble() -> None:
    base = parse_profile(profile_document(), "p")
    with pytest.raises(CalibrationError, match="p: its fit section has no errors"):
        draw(base, 2)


def test_an_error_of_no_points_is_no_record() -> None:
    """A hurried calibration has tables, but measured nothing off their grids."""
    fit = {name: {"num_points": 0} for name in ("dense", "prefill_attention", "decode_attention")}
    base = replace(parse_profile(second_document(), "p"), fit=fit)
    with pytest.raises(CalibrationError, match="p: its fit section has no errors"):
        draw(base, 2)
