"""How far off interpolation between measured points is: leave-one-out errors, summed up."""

from typing import Any

import numpy as np

from calibration.cost_model import FloatArray

_DIGITS = 5


def error_summary(errors: FloatArray) -> dict[str, Any]:
    """Return mean, median and 90th percentile of absolute relative errors, and the signed mean."""
    if not len(errors):
        return {"num_points": 0}
    size = np.abs(errors)
    return {
        "num_points": len(errors),
        "mean": round(float(size.mean()), _DIGITS),
        "p50": round(float(np.median(size)), _DIGITS),
        "p90": round(float(np.percentile(size, 90)), _DIGITS),
        "bias": round(float(errors.mean()), _DIGITS),
    }


def grid_leave_out_errors(axis: FloatArray, times_us: FloatArray) -> FloatArray:
    """Return the signed relative errors of leaving out each inner column of a table in turn."""
    share = (axis[1:-1] - axis[:-2]) / (axis[2:] - axis[:-2])
    guess = times_us[:, :-2] + share * (times_us[:, 2:] - times_us[:, :-2])
    errors: FloatArray = (guess / times_us[:, 1:-1] - 1.0).ravel()
    return errors[np.isfinite(errors)]
