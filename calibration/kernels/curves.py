"""Kernel times of one operation over one count."""

from dataclasses import dataclass

import numpy as np

from calibration.cost_model import FloatArray
from calibration.interpolation import Line


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
