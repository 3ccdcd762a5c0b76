"""Checks of numbers given by a user."""

import math

from calibration.errors import CalibrationError


def require_seconds(name: str, value: float, *, positive: bool = False) -> float:
    """Return `value` as a float if it is a finite duration: above 0 if `positive`, else 0 or more.

    Raises:
        CalibrationError: naming the argument and its value.
    """
    if math.isfinite(value) and (value > 0 if positive else value >= 0):
        return float(value)
    bound = "above 0" if positive else "of 0 or more"
    raise CalibrationError(f"{name} is {value}; it must be a finite number of seconds {bound}")


def require_count(name: str, value: int) -> int:
    """Return `value` if it is a whole number of 1 or more.

    Raises:
        CalibrationError: naming the argument and its value.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise CalibrationError(f"{name} is {value!r}; it must be a whole number of 1 or more")
    return value
