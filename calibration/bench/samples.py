"""Timings of points: statistics that stand disturbances, and a file that survives an interrupt.

A point's time is the mean of its samples, outliers clipped. Not the median: times of parts are to
add up to the time of a step, and where others share the machine, medians of short parts know
nothing of the interruptions that every long step has (measured with ten processes on two cores:
sums of medians 5 % short, of means 3 %). On a quiet machine the two are the same. Times near the
median are never outliers: a core whose neighbour works now and then has two paces, 20 % apart where
this was measured, and to clip the rarer of them takes the other one for the mean.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from calibration.bench.points import Point
from calibration.cost_model import FloatArray
from calibration.errors import CalibrationError

FORMAT = "headway-samples"
MIN_SAMPLES = 5
SETTLED_AT = 0.01
"""A point is settled if the standard error of its time is below this share of it."""

_DISTURBED_SHARE, _DISTURBED_S = 0.05, 1e-4
_NORMAL_MAD = 1.4826  # median absolute deviation to standard deviation
_CLIPPED_AT = 3.0  # standard deviations from the median
_NEAR = 0.25  # share of the median, within which nothing is clipped


class Sample(NamedTuple):
    """One timing. `time_s` is what counts; the others tell whether something came between."""

    time_s: float
    wall_s: float
    cpu_s: float

    @property
    def is_disturbed(self) -> bool:
        """Whether the thread was off its core for more than a little of the time."""
        return self.wall_s - self.cpu_s > _DISTURBED_SHARE * self.cpu_s + _DISTURBED_S


@dataclass(frozen=True, slots=True)
class Statistics:
    """Time of a point in seconds, the samples' relative scatter, and the time's standard error.

    `num_disturbed` of the samples were interrupted by others.
    """

    time_s: float
    noise: float
    error: float
    num_samples: int
    num_disturbed: int

    @property
    def is_settled(self) -> bool:
        """Whether more samples would hardly move the time."""
        return self.num_samples >= MIN_SAMPLES and self.error <= SETTLED_AT


class SampleStore:
    """All samples by point, in the order in which they were taken; appended to `file`, if given.

    `header` says what is measured: a file of something else is refused.
    """

    def __init__(self, header: dict[str, Any], file: Path | None = None) -> None:
        self.header = {"format": FORMAT, **header}
        self.samples: dict[Point, list[Sample]] = {}
        self.order: list[tuple[Point, Sample]] = []
        self.file = file
        self._known: dict[Point, Statistics] = {}

    def start(self) -> None:
        """Begin a new file."""
        if self.file is not None:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self.file.write_text(json.dumps(self.header) + "\n", encoding="utf-8")

    def resume(self) -> None:
        """Read the file and go on with it.

        Raises:
            CalibrationError: no such file, or it is of another device, model or setting.
        """
        file = self.file
        if file is None or not file.is_file():
            raise CalibrationError(f"{file}: nothing to resume; start without --resume")
        lines = file.read_text(encoding="utf-8").splitlines()
        self._check_header(file, _parsed(lines[0]) if lines else None)
        for line in lines[1:]:
            entry = _parsed(line)
            if isinstance(entry, list) and len(entry) == 6:  # a line cut by a kill is passed over
                self._keep(Point(*entry[:3]), Sample(*entry[3:]))

    @staticmethod
    def recorded(file: Path | None, key: str) -> str:
        """Return an entry of a file's header, "" if there is no such file or entry."""
        if file is None or not file.is_file():
            return ""
        with file.open(encoding="utf-8") as lines:
            header = _parsed(lines.readline())
        return str(header.get(key, "")) if isinstance(header, dict) else ""

    def add(self, point: Point, sample: Sample) -> None:
        """Keep a sample."""
        self._keep(point, sample)
        if self.file is not None:
            with self.file.open("a", encoding="utf-8") as out:
                out.write(json.dumps([*point, *sample]) + "\n")

    def statistics(self, point: Point) -> Statistics | None:
        """Return the time of a point and how sure it is; None without samples."""
        if point not in self.samples:
            return None
        if point not in self._known:
            self._known[point] = _statistics(self.samples[point])
        return self._known[point]

    def time_s(self, point: Point) -> float:
        """Return the time of a point that has samples."""
        found = self.statistics(point)
        if found is None:
            raise KeyError(point)
        return found.time_s

    def lost_share(self) -> float:
        """Return what passed on the wall beyond the times of the points, as a share of them.

        Interruptions: the points' times leave them out, and who waits for an answer does not.
        """
        counted_s = sum(self.time_s(point) for point, _ in self.order)
        return sum(sample.wall_s for _, sample in self.order) / counted_s - 1.0

    def clipped_share(self) -> float:
        """Return what the samples took beyond the times of the points, as a share of them.

        Slow ones that are clipped: who runs many steps has them, too.
        """
        counted_s = sum(self.time_s(point) for point, _ in self.order)
        return sum(sample.time_s for _, sample in self.order) / counted_s - 1.0

    def drift(self, point: Point) -> float:
        """Return how much later samples of a point differ from earlier ones, as a share."""
        times = [sample.time_s for other, sample in self.order if other == point]
        if len(times) < 2 * MIN_SAMPLES:
            return 0.0
        half = len(times) // 2
        return mean_time_s(times[half:]) / mean_time_s(times[:half]) - 1.0

    def _keep(self, point: Point, sample: Sample) -> None:
        self.samples.setdefault(point, []).append(sample)
        self._known.pop(point, None)
        self.order.append((point, sample))

    def _check_header(self, file: Path, header: Any) -> None:
        if not isinstance(header, dict) or header.get("format") != FORMAT:
            raise CalibrationError(f"{file}: not a file of samples of this program")
        for key, value in self.header.items():
            if header.get(key) != value:
                raise CalibrationError(
                    f"{file}: was measured with {key} {header.get(key)!r}, now it is {value!r};"
                    " start anew without --resume"
                )


def mean_time_s(times_s: Sequence[float]) -> float:
    """Return the mean with outliers clipped."""
    return float(_clipped(np.array(times_s)).mean())


def _clipped(times: FloatArray) -> FloatArray:
    median = float(np.median(times))
    scatter = _NORMAL_MAD * float(np.median(np.abs(times - median)))
    bound = max(_CLIPPED_AT * scatter, _NEAR * median)
    return np.clip(times, median - bound, median + bound)


def _statistics(samples: list[Sample]) -> Statistics:
    times = _clipped(np.array([sample.time_s for sample in samples]))
    time_s = float(times.mean())
    noise = float(times.std(ddof=1)) / time_s if len(times) > 1 else 0.0
    num_disturbed = sum(sample.is_disturbed for sample in samples)
    return Statistics(time_s, noise, noise / len(times) ** 0.5, len(times), num_disturbed)


def _parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None
