"""Tables of measured times in a profile file, and the checks of their numbers."""

import math
from dataclasses import dataclass
from typing import Any

from calibration.errors import CalibrationError
from calibration.names import unknown_name

_MIN_POINTS = 2


@dataclass(frozen=True, slots=True)
class CurveTable:
    """Times over one count: `time_us[i]` at `axis[i]`."""

    axis_name: str
    axis: tuple[float, ...]
    time_us: tuple[float, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the table as it stands in a file."""
        return {self.axis_name: list(self.axis), "time_us": list(self.time_us)}


@dataclass(frozen=True, slots=True)
class ShareTable:
    """Shares from 0 to 1 over one count: `share[i]` at `axis[i]`."""

    axis_name: str
    axis: tuple[float, ...]
    share: tuple[float, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the table as it stands in a file."""
        return {self.axis_name: list(self.axis), "share": list(self.share)}


@dataclass(frozen=True, slots=True)
class GridTable:
    """Times over two counts: `time_us[i][j]` at `rows[i]`, `columns[j]`; no cell is missing."""

    row_name: str
    column_name: str
    rows: tuple[float, ...]
    columns: tuple[float, ...]
    time_us: tuple[tuple[float, ...], ...]

    def to_json(self) -> dict[str, Any]:
        """Return the table as it stands in a file."""
        return {
            self.row_name: list(self.rows),
            self.column_name: list(self.columns),
            "time_us": [list(row) for row in self.time_us],
        }


@dataclass(frozen=True, slots=True)
class BoxTable:
    """Times over three counts: `time_us[h][i][j]` at `layers[h]`, `rows[i]`, `columns[j]`."""

    layer_name: str
    row_name: str
    column_name: str
    layers: tuple[float, ...]
    rows: tuple[float, ...]
    columns: tuple[float, ...]
    time_us: tuple[tuple[tuple[float, ...], ...], ...]

    def to_json(self) -> dict[str, Any]:
        """Return the table as it stands in a file."""
        return {
            self.layer_name: list(self.layers),
            self.row_name: list(self.rows),
            self.column_name: list(self.columns),
            "time_us": [[list(row) for row in layer] for layer in self.time_us],
        }


def parse_curve(table: Any, where: str, axis_name: str) -> CurveTable:
    """Return a checked one-axis table; raises CalibrationError naming the entry."""
    entries = check_keys(table, where, required=(axis_name, "time_us"))
    axis = _axis(entries[axis_name], f"{where}.{axis_name}")
    times = _times(entries["time_us"], f"{where}.time_us", len(axis))
    return CurveTable(axis_name, axis, times)


def parse_shares(table: Any, where: str, axis_name: str) -> ShareTable:
    """Return a checked table of shares; raises CalibrationError naming the entry."""
    entries = check_keys(table, where, required=(axis_name, "share"))
    axis = _axis(entries[axis_name], f"{where}.{axis_name}")
    values = _list(entries["share"], f"{where}.share")
    _check_length(values, f"{where}.share", len(axis))
    shares = tuple(number(value, f"{where}.share[{i}]") for i, value in enumerate(values))
    for i, share in enumerate(shares):
        if not 0 <= share <= 1:
            raise CalibrationError(f"{where}.share[{i}]: is {share:g}; a share is from 0 to 1")
    return ShareTable(axis_name, axis, shares)


def parse_grid(table: Any, where: str, row_name: str, column_name: str) -> GridTable:
    """Return a checked two-axis table; raises CalibrationError naming the entry."""
    entries = check_keys(table, where, required=(row_name, column_name, "time_us"))
    rows = _axis(entries[row_name], f"{where}.{row_name}")
    columns = _axis(entries[column_name], f"{where}.{column_name}")
    times = _grid_times(entries["time_us"], f"{where}.time_us", len(rows), len(columns))
    return GridTable(row_name, column_name, rows, columns, times)


def parse_box(table: Any, where: str, layer_name: str, row_name: str, column_name: str) -> BoxTable:
    """Return a checked three-axis table; raises CalibrationError naming the entry."""
    names = (layer_name, row_name, column_name)
    entries = check_keys(table, where, required=(*names, "time_us"))
    layers, rows, columns = (_axis(entries[name], f"{where}.{name}") for name in names)
    grids = _list(entries["time_us"], f"{where}.time_us")
    _check_length(grids, f"{where}.time_us", len(layers))
    times = tuple(
        _grid_times(grid, f"{where}.time_us[{i}]", len(rows), len(columns))
        for i, grid in enumerate(grids)
    )
    return BoxTable(*names, layers, rows, columns, times)


def check_keys(
    value: Any, where: str, *, required: tuple[str, ...], optional: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Return `value` if it is an object with all required keys and no unknown one.

    Raises:
        CalibrationError: naming the missing or unknown key; the nearest known one is offered.
    """
    if not isinstance(value, dict):
        raise CalibrationError(f"{where}: must be an object with {', '.join(required)}")
    for key in value:
        if key not in required and key not in optional:
            raise CalibrationError(f"{where}: {unknown_name('key', key, [*required, *optional])}")
    for key in required:
        if key not in value:
            raise CalibrationError(f"{where}: {key} is missing")
    return value


def number(value: Any, where: str) -> float:
    """Return a finite number; raises CalibrationError naming the entry."""
    if value is None:
        raise CalibrationError(f"{where}: is empty; a table has no gaps")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise CalibrationError(f"{where}: is {value!r}; it must be a number")
    if not math.isfinite(value):
        raise CalibrationError(f"{where}: is {value}; it must be finite")
    return float(value)


def _axis(values: Any, where: str) -> tuple[float, ...]:
    axis = tuple(number(value, f"{where}[{i}]") for i, value in enumerate(_list(values, where)))
    if len(axis) < _MIN_POINTS:
        raise CalibrationError(f"{where}: has {len(axis)} points; at least {_MIN_POINTS} are due")
    if axis[0] < 0:
        raise CalibrationError(f"{where}[0]: is {axis[0]:g}; a count is 0 or more")
    for i in range(1, len(axis)):
        if axis[i] == axis[i - 1]:
            raise CalibrationError(f"{where}[{i}]: {axis[i]:g} stands there twice")
        if axis[i] < axis[i - 1]:
            raise CalibrationError(
                f"{where}[{i}]: {axis[i]:g} comes after {axis[i - 1]:g}; the order is ascending"
            )
    return axis


def _grid_times(
    values: Any, where: str, num_rows: int, num_columns: int
) -> tuple[tuple[float, ...], ...]:
    lines = _list(values, where)
    _check_length(lines, where, num_rows)
    return tuple(_times(line, f"{where}[{i}]", num_columns) for i, line in enumerate(lines))


def _times(values: Any, where: str, num_points: int) -> tuple[float, ...]:
    line = _list(values, where)
    _check_length(line, where, num_points)
    times = tuple(number(value, f"{where}[{i}]") for i, value in enumerate(line))
    for i, time_us in enumerate(times):
        if time_us <= 0:
            raise CalibrationError(f"{where}[{i}]: is {time_us:g}; a measured time is above 0")
    return times


def _list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise CalibrationError(f"{where}: must be a list")
    return value


def _check_length(values: list[Any], where: str, num_points: int) -> None:
    if len(values) != num_points:
        raise CalibrationError(
            f"{where}: has {len(values)} entries for {num_points} points of its axis;"
            " a table has no gaps"
        )
