"""Piecewise linear interpolation of measured times, the same in scalar and in vector form.

Linear, not logarithmic: attention and GEMM times are sums of a fixed part and parts proportional
to counts, and between two points of a line the logarithm's chord lies above it (measured on
attention: 11 to 14 % too high).
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

import numpy as np

from calibration.cost_model import FloatArray


class Line:
    """Straight lines between points (x ascending, at least two).

    Below the first point the first value holds: a smaller batch is not known to be cheaper.
    Beyond the last, the last line goes on, level if it falls, so that noise never makes larger
    work cheaper without end.
    """

    def __init__(self, x: Sequence[float], y: Sequence[float]) -> None:
        self.x = [float(value) for value in x]
        self.y = [float(value) for value in y]
        self.slope = [
            (y1 - y0) / (x1 - x0)
            for x0, x1, y0, y1 in zip(self.x, self.x[1:], self.y, self.y[1:], strict=False)
        ]
        # One more entry for what lies beyond the last point.
        self.slope.append(max(self.slope[-1], 0.0))
        self._arrays = (np.array(self.x), np.array(self.y), np.array(self.slope))

    def points(self) -> tuple[list[float], list[float]]:
        """Return x and y of the points."""
        return self.x, self.y

    def at(self, x: float) -> float:
        """Return the value at one x."""
        i = bisect_right(self.x, x) - 1
        if i < 0:
            return self.y[0]
        return self.y[i] + self.slope[i] * (x - self.x[i])

    def at_each(self, x: FloatArray) -> FloatArray:
        """Return the values at many x; each is bit for bit what `at` gives."""
        xs, ys, slopes = self._arrays
        i = np.maximum(np.searchsorted(xs, x, side="right") - 1, 0)
        values: FloatArray = ys[i] + slopes[i] * (x - xs[i])
        return np.where(x < xs[0], ys[0], values)


class Grid:
    """Bilinear interpolation of a full table of times over (row axis, column axis).

    Beyond the table it behaves as `Line` does, first along the rows, then along the columns.
    """

    def __init__(
        self, rows: Sequence[float], columns: Sequence[float], values: Sequence[Sequence[float]]
    ) -> None:
        self.columns = [float(value) for value in columns]
        self._down = [Line(rows, column) for column in zip(*values, strict=True)]

    def row(self, row: float) -> Line:
        """Return the line along the columns at one row value."""
        return Line(self.columns, [line.at(row) for line in self._down])

    def points(self) -> tuple[list[float], list[tuple[list[float], list[float]]]]:
        """Return the columns, and the points down each of them."""
        return self.columns, [line.points() for line in self._down]

    def at(self, row: float, column: float) -> float:
        """Return the value at one point, from its two neighbouring columns only."""
        last = len(self.columns) - 1
        j = bisect_right(self.columns, column) - 1
        if j < 0:
            return self._down[0].at(row)
        left = min(j, last - 1)
        y0 = self._down[left].at(row)
        y1 = self._down[left + 1].at(row)
        slope = (y1 - y0) / (self.columns[left + 1] - self.columns[left])
        if j == last:
            return y1 + max(slope, 0.0) * (column - self.columns[last])
        return y0 + slope * (column - self.columns[left])


class Box:
    """Trilinear interpolation of a full table of times over (layer, row axis, column axis).

    Outside the layers' axis the first or the last layer holds; within a layer it behaves as
    `Grid` does.
    """

    def __init__(self, layers: Sequence[float], grids: Sequence[Grid]) -> None:
        self.layers = [float(value) for value in layers]
        self._grids = list(grids)

    def points(self) -> tuple[list[float], list[Any]]:
        """Return the layers, and the points of the grid of each."""
        return self.layers, [grid.points() for grid in self._grids]

    def at(self, layer: float, row: float, column: float) -> float:
        """Return the value at one point, from its two neighbouring layers only."""
        i = bisect_right(self.layers, layer) - 1
        if i < 0 or i == len(self.layers) - 1:
            return self._grids[max(i, 0)].at(row, column)
        low = self._grids[i].at(row, column)
        share = (layer - self.layers[i]) / (self.layers[i + 1] - self.layers[i])
        return low + share * (self._grids[i + 1].at(row, column) - low)
