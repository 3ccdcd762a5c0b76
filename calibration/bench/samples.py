"""Timings of points: statistics that stand disturbances, and a file that survives an interrupt."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from calibration.bench.points import Point
from calibration.errors import CalibrationError

FORMAT = "headway-samples"
MIN_SAMPLES = 5
SETTLED_AT = 0.01
"""A point is settled if the standard error of its median is below this share of it."""

_DISTURBED_SHARE, _DISTURBED_S = 0.05, 1e-4
_NORMAL_MAD, _MEDIAN_ERROR = 1.4826, 1.2533


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
    """Median of a point in seconds, its relative scatter, and that median's standard error.

    `num_samples` are those that were used, `num_disturbed` all that were disturbed.
    """

    median_s: float
    noise: float
    error: float
    num_samples: int
    num_disturbed: int

    @property
    def is_settled(self) -> bool:
        """Whether more samples would hardly move the median."""
        return self.num_samples >= MIN_SAMPLES and self.error <= SETTLED_AT


class SampleStore:
    """All samples by point, in the order in which they were taken; appended to a file, if given.

    `header` says what is measured: a file of something else is refused.
    """

    def __init__(self, header: dict[str, Any], file: Path | None = None) -> None:
        self.header = {"format": FORMAT, **header}
        self.samples: dict[Point, list[Sample]] = {}
        self.order: list[tuple[Point, Sample]] = []
        self._file = file
        self._known: dict[Point, Statistics] = {}

    def start(self) -> None:
        """Begin a new file."""
        if self._file is not None:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._file.write_text(json.dumps(self.header) + "\n", encoding="utf-8")

    def resume(self) -> None:
        """Read the file and go on with it.

        Raises:
            CalibrationError: no such file, or it is of another device, model or setting.
        """
        file = self._file
        if file is None or not file.is_file():
            raise CalibrationError(f"{file}: nothing to resume; start without --resume")
        lines = file.read_text(encoding="utf-8").splitlines()
        self._check_header(file, _parsed(lines[0]) if lines else None)
        for line in lines[1:]:
            entry = _parsed(line)
            if isinstance(entry, list) and len(entry) == 6:  # a line cut by a kill is passed over
                self._keep(Point(*entry[:3]), Sample(*entry[3:]))

    def add(self, point: Point, sample: Sample) -> None:
        """Keep a sample."""
        self._keep(point, sample)
        if self._file is not None:
            with self._file.open("a", encoding="utf-8") as out:
                out.write(json.dumps([*point, *sample]) + "\n")

    def statistics(self, point: Point) -> Statistics | None:
        """Return the median of the undisturbed samples (of all, if those are few); None: none."""
        if point not in self.samples:
            return None
        if point not in self._known:
            self._known[point] = _statistics(self.samples[point])
        return self._known[point]

    def median_s(self, point: Point) -> float:
        """Return the median of a point that has samples."""
        found = self.statistics(point)
        if found is None:
            raise KeyError(point)
        return found.median_s

    def drift(self, point: Point) -> float:
        """Return how much later samples of a point differ from earlier ones, as a share."""
        times = [sample.time_s for other, sample in self.order if other == point]
        if len(times) < 2 * MIN_SAMPLES:
            return 0.0
        half = len(times) // 2
        return float(np.median(times[half:]) / np.median(times[:half])) - 1.0

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


def _statistics(samples: list[Sample]) -> Statistics:
    calm = [sample for sample in samples if not sample.is_disturbed]
    used = calm if len(calm) >= MIN_SAMPLES else samples
    times = np.array([sample.time_s for sample in used])
    median = float(np.median(times))
    noise = _NORMAL_MAD * float(np.median(np.abs(times - median))) / median
    error = _MEDIAN_ERROR * noise / len(times) ** 0.5
    return Statistics(median, noise, error, len(used), len(samples) - len(calm))


def _parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None
