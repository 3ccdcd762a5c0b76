"""The adaptive grid: where a table is measured, and where it needs more points."""

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from calibration.bench.chunk_rows import with_rows_between
from calibration.bench.points import CHUNKS, CURVES, Point
from calibration.interpolation import Grid, Line

TOLERANCE = 0.02
"""A gap is halved if interpolation misses its middle by more than this share."""

_ALL_UP_TO, _NEIGHBOURS_UP_TO = 32, 128
_OFF, _HALF_A_BLOCK = 3, 8
_NEAREST = 1.3  # neighbours closer than this ratio are left alone


@dataclass(frozen=True, slots=True)
class Limits:
    """The largest batch that a step of the engine can be, and the cache it can fill."""

    max_num_batched_tokens: int
    max_num_seqs: int
    max_model_len: int
    max_context_tokens: int


@dataclass(slots=True)
class TableAxes:
    """Points of one table on their axes; a curve has the one column 0."""

    table: str
    rows: list[int]
    columns: list[int]
    limit: int | None = None
    """Largest product of row and column that can be measured; None: no limit."""
    probes: dict[Point, float] = field(default_factory=dict)
    """Points off the axes and the relative error of interpolation there."""

    def is_measured(self, row: int, column: int) -> bool:
        """Whether the cell fits the cache."""
        return self.limit is None or row * column <= self.limit

    def points(self) -> list[Point]:
        """Every cell that is measured."""
        return [
            Point(self.table, row, column)
            for row in self.rows
            for column in self.columns
            if self.is_measured(row, column)
        ]

    def candidates(self) -> list[Point]:
        """The middle of every wide gap: of rows at a middle column, of columns at a middle row."""
        column = self.columns[len(self.columns) // 2]
        row = self.rows[len(self.rows) // 2]
        middles = [(middle, column) for middle in _middles(self.rows)]
        if self.table == CHUNKS:  # without context a chunk is the least like its pairs of tokens
            middles += [(middle, self.columns[0]) for middle in _middles(self.rows)]
        if self.table not in CURVES:
            middles += [(row, middle) for middle in _middles(self.columns)]
        points = [Point(self.table, *middle) for middle in middles if self.is_measured(*middle)]
        return [point for point in points if point not in self.probes]

    def times(self, time_s: Callable[[Point], float]) -> list[list[float]]:
        """Return seconds of every cell; those beyond the cache go on along their row."""
        return [self._row(row, time_s) for row in self.rows]

    def read_rows(self, time_s: Callable[[Point], float]) -> tuple[list[int], list[list[float]]]:
        """Return the rows that straight lines are drawn between, and seconds of every cell."""
        times = self.times(time_s)
        if self.table == CHUNKS:
            return with_rows_between(self.rows, self.columns, times)
        return self.rows, times

    def judge(self, probe: Point, time_s: Callable[[Point], float], noise: float) -> bool:
        """Hold interpolation against a measured probe; where it misses, add its row or column.

        `noise` is the standard error of the probe's time, as a share.
        """
        if len(self.rows) < 2:
            return False
        rows, times = self.read_rows(time_s)
        if self.table in CURVES:
            guess = Line(rows, [line[0] for line in times]).at(probe.first)
        else:
            guess = Grid(rows, self.columns, times).at(probe.first, probe.second)
        error = guess / time_s(probe) - 1.0
        self.probes[probe] = error
        if abs(error) <= TOLERANCE + 2 * noise:
            return False
        self._widen(probe)
        return True

    def drop_unfilled(self, known: Container[Point]) -> None:
        """Take out what was added last and not measured: rows first, then columns."""
        while any(point not in known for point in self.points()):
            gaps = [point for point in self.points() if point not in known]
            by_row = max(self.rows, key=lambda row: sum(p.first == row for p in gaps))
            by_column = max(self.columns, key=lambda col: sum(p.second == col for p in gaps))
            in_row = sum(p.first == by_row for p in gaps)
            in_column = sum(p.second == by_column for p in gaps)
            if in_row >= in_column:
                self.rows.remove(by_row)
            else:
                self.columns.remove(by_column)

    def _widen(self, probe: Point) -> None:
        self.rows = sorted({*self.rows, probe.first})
        if self.table not in CURVES:
            self.columns = sorted({*self.columns, probe.second})

    def _row(self, row: int, time_s: Callable[[Point], float]) -> list[float]:
        known = [column for column in self.columns if self.is_measured(row, column)]
        times = [time_s(Point(self.table, row, column)) for column in known]
        if len(known) == len(self.columns):
            return times
        return [Line(known, times).at(column) for column in self.columns]


def initial_axes(limits: Limits) -> list[TableAxes]:
    """Return the coarse axes that measuring begins with."""
    tokens, seqs, context = (
        limits.max_num_batched_tokens,
        limits.max_num_seqs,
        limits.max_model_len,
    )
    room = max(limits.max_context_tokens, 2 * seqs)
    # The last token of a request is returned, never computed on: no piece sees more than this.
    # A decode's last block is half full in the mean, and kernels that gather blocks read it whole:
    # so it is in the table, too, for blocks of 16 and all contexts but the least and the longest.
    contexts = _untidy(_spaced(16, context, 4), _HALF_A_BLOCK)
    chunks = _untidy(_spaced(2, max(tokens, 4), 4), _OFF)
    return [
        TableAxes("dense", _product_sizes(max(tokens, 2)), [0]),
        TableAxes("logits", _product_sizes(max(seqs, 2)), [0]),
        TableAxes(CHUNKS, chunks, [0, *contexts]),
        TableAxes("decode_attention", _spaced(1, max(seqs, 2), 4), [1, *contexts], room),
    ]


def _spaced(first: int, last: int, ratio: int) -> list[int]:
    """Return first, first * ratio, ... and last."""
    values = [first]
    while values[-1] * ratio < last:
        values.append(values[-1] * ratio)
    return values if last <= first else [*values, last]


def _untidy(values: list[int], off: int) -> list[int]:
    """Move all but the last off the round numbers, at which kernels are quicker than usual."""
    moved = [value - off if value >= 4 * off else value for value in values[:-1]]
    return [*moved, values[-1]]


def _product_sizes(last: int) -> list[int]:
    """Return counts at which products are timed: all small ones, then 48, 64, 96, 128, ...

    Products work in tiles: on a CPU, 9 to 11 rows take 10 % more than the line from 8 to 12 says.
    So small sizes are timed one by one, and larger round ones with both neighbours, between which
    lie the sizes that fill no tile; where tiles hardly matter any more, round ones alone.
    """
    round_sizes = sorted({last, *(n for p in _spaced(32, last, 2) for n in (p, p + p // 2))})
    sizes = {*range(1, min(_ALL_UP_TO, last) + 1)}
    for size in round_sizes:
        sizes |= {size - 1, size, size + 1} if size <= _NEIGHBOURS_UP_TO else {size}
    return sorted(size for size in sizes if size <= last)


def _middles(values: Sequence[int]) -> list[int]:
    """Geometric middles of gaps that are wide enough to have one."""
    middles = (
        round((max(low, 1) * high) ** 0.5) if low else high // 2
        for low, high in pairwise(values)
        if high > _NEAREST * _NEAREST * max(low, 1) and high - low > 1
    )
    return [middle for middle in middles if middle not in values and middle > 0]
