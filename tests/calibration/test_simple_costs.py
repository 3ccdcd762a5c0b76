import math

import pytest

from calibration import CalibrationError, ConstantCost, LinearCost, StepShape, decode_shape


def test_constant() -> None:
    cost = ConstantCost(0.25)
    assert cost.step_time_s(StepShape(900, 1, 0, 0, ((900, 0),))) == 0.25
    assert cost.decode_times_s(3, 30, 4).tolist() == [0.25] * 4


def test_linear_by_hand() -> None:
    cost = LinearCost(1.0, per_token_s=0.1, per_context_token_s=0.01, per_logit_s=0.5)
    shape = StepShape(12, 3, 2, 50, ((10, 40),))
    assert cost.step_time_s(shape) == pytest.approx(1 + 0.1 * 12 + 0.5 * 3 + 0.01 * (50 + 50))
    assert cost.step_time_s(decode_shape(2, 50)) == pytest.approx(1 + 0.2 + 1.0 + 0.5)


@pytest.mark.parametrize("step_s", [0.0, -1.0, math.nan, math.inf])
def test_constant_refuses(step_s: float) -> None:
    with pytest.raises(CalibrationError, match="step_s is"):
        ConstantCost(step_s)


@pytest.mark.parametrize("name", ["base_s", "per_token_s", "per_context_token_s", "per_logit_s"])
@pytest.mark.parametrize("value", [-1e-9, math.nan, math.inf])
def test_linear_refuses(name: str, value: float) -> None:
    with pytest.raises(CalibrationError, match=f"{name} is"):
        LinearCost(**({"base_s": 1.0} | {name: value}))


def test_linear_refuses_a_step_without_time() -> None:
    with pytest.raises(CalibrationError, match="would take no time"):
        LinearCost(0.0, per_context_token_s=1.0)
