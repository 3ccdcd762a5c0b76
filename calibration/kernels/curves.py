"""Kernel times of one operation over one count."""

from dataclasses import dataclass

import numpy as np

from calibration.cost_model import FloatArray
from calibration.interpolation import Line

_NOISE = 1.02
"""What repeats of one call differ by: the median step of the tables where they are level."""


def settled(times_us: FloatArray) -> FloatArray:
    """Return times over an ascending count (last axis) with hiccups taken out; NaN stays.

    Less work never needs longer than more: it could be padded. A time above the least of all
    larger calls is a hiccup of the measurement or of a library's choice of kernel (of products,
    6 % of the points on H100 and 15 % on B200, there up to 2.7 times too long); it becomes that
    least time, but for what repeats differ by anyway.
    """
    larger = np.where(np.isnan(times_us), np.inf, times_us)[..., ::-1]
    least = np.minimum.accumulate(larger, axis=-1)[..., ::-1]
    return np.where(np.isnan(times_us), np.nan, np.minimum(times_us, _NOISE * least))


@dataclass(frozen=True, slots=True)
class Curve:
    """Microseconds `time_us[i]` at `axis[i]`, measured; straight lines between."""

    axis: FloatArray
    time_us: FloatArray

    def at(self, x: FloatArray) -> FloatArray:
        """Return the times at many counts; beyond the last point the last line goes on."""
        return Line(self.axis.tolist(), self.time_us.tolist()).at_each(x)

    def leave_out_errors(self) -> FloatArray:
        """Return the signed relative error at each inner point if it is interpolated instead.

        An upper bound of the error between points: their distance is doubled.
        """
        inner = range(1, len(self.axis) - 1)
        errors = [self._without(i) / self.time_us[i] - 1.0 for i in inner]
        return np.array(errors, dtype=np.float64)

    def _without(self, i: int) -> float:
        x0, x1, x2 = self.axis[i - 1 : i + 2]
        y0, _, y2 = self.time_us[i - 1 : i + 2]
        return float(y0 + (y2 - y0) * (x1 - x0) / (x2 - x0))
