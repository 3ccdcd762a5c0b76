"""Everything that one calibration times: tables, operations, checks and held-out steps."""

from collections.abc import Sequence

from calibration.bench.axes import Limits, TableAxes, initial_axes
from calibration.bench.points import MIXED, OPERATION, SKEW, SKEWED_MIX, WHOLE, Point
from calibration.bench.samples import SampleStore
from calibration.bench.skewed_contexts import skewed_contexts


class CalibrationPlan:
    """The points of a calibration; `refine` halves gaps where interpolation misses.

    `axes` are the tables, `checks` what is timed for the report alone.
    """

    def __init__(self, limits: Limits, operations: Sequence[str], num_held_out: int) -> None:
        self.limits = limits
        self.axes = initial_axes(limits)
        # Of the coarse axes, whatever is added to them later.
        self.operations = _operation_points(self.axes_of("dense"), operations)
        self.skew = _skew_points(self.axes_of("decode_attention"))
        self.mixed = _mixed_points(
            self.axes_of("prefill_attention"), self.axes_of("decode_attention")
        )
        self.skewed_mixes = _skewed_mixes(self.mixed, self.axes_of("decode_attention"))
        self.held_out = [Point(WHOLE, number) for number in range(num_held_out)]
        self.checks = [
            *(point for points in self.operations.values() for point in points),
            *self.skew,
            *(point for points in self.mixed for point in points),
            *self.skewed_mixes,
            *self.held_out,
        ]
        self._probes: list[Point] = []
        self._judged: set[Point] = set()

    def axes_of(self, table: str) -> TableAxes:
        """Return the axes of a table."""
        return next(axes for axes in self.axes if axes.table == table)

    def points(self) -> list[Point]:
        """Every point that is wanted now, tables first."""
        tables = [point for axes in self.axes for point in axes.points()]
        return list(dict.fromkeys([*tables, *self._probes, *self.checks]))

    def missing(self, store: SampleStore) -> list[Point]:
        """Return the points without which there is no profile."""
        return [
            point for axes in self.axes for point in axes.points() if point not in store.samples
        ]

    def refine(self, store: SampleStore) -> bool:
        """Judge the measured probes, then ask for new ones; False if no gap is left to look at."""
        for axes in self.axes:
            for probe in self._open_probes(axes):
                found = store.statistics(probe)
                axes.judge(probe, store.time_s, found.error if found else 0.0)
                self._judged.add(probe)
                if any(point not in store.samples for point in axes.points()):
                    return True  # a new row or column is to be filled before judging goes on
        added = [
            point for axes in self.axes for point in axes.candidates() if point not in self._judged
        ]
        self._probes += added
        return bool(added)

    def settle(self, store: SampleStore) -> None:
        """Leave out rows and columns that time did not suffice to fill."""
        for axes in self.axes:
            axes.drop_unfilled(store.samples)

    def _open_probes(self, axes: TableAxes) -> list[Point]:
        return [p for p in self._probes if p.table == axes.table and p not in self._judged]


def _skew_points(axes: TableAxes) -> list[Point]:
    """Return decode batches of unlike contexts, two of each size: those with the most context."""
    return [
        Point(SKEW, row, column)
        for row in axes.rows[1:]
        for column in [column for column in axes.columns[1:] if _is_skewable(axes, row, column)][
            -2:
        ]
    ]


def _is_skewable(axes: TableAxes, count: int, mean: int) -> bool:
    """Whether the longest of such contexts lies within the table."""
    longest = max(skewed_contexts(mean, count))
    return mean < longest <= axes.columns[-1] and axes.is_measured(count, mean)


def _skewed_mixes(mixed: Sequence[tuple[Point, Point, Point]], axes: TableAxes) -> list[Point]:
    """Return the mixed batches with unlike contexts in the place of equal ones."""
    return [
        Point(SKEWED_MIX, point.first, point.second)
        for point, _, _ in mixed
        if _is_skewable(axes, point.second, point.first)
    ]


def _mixed_points(prefill: TableAxes, decode: TableAxes) -> list[tuple[Point, Point, Point]]:
    """Return (a chunk beside decodes, the chunk, the decodes)."""
    counts = sorted({decode.rows[len(decode.rows) // 2], decode.rows[-1]})
    lengths = [length for length in decode.columns if 4 <= length <= prefill.rows[-1]][-2:]
    return [
        (
            Point(MIXED, length, count),
            Point(prefill.table, length, 0),
            Point(decode.table, count, length),
        )
        for count in counts
        for length in lengths
        if decode.is_measured(count, length)
    ]


def _operation_points(dense: TableAxes, names: Sequence[str]) -> dict[str, list[Point]]:
    """Return the points of each operation, over a few token counts."""
    counts = dense.rows[:: max(1, len(dense.rows) // 4)]
    return {name: [Point(OPERATION + name, count) for count in counts] for name in names}
