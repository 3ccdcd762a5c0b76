"""What runs a batch: the decoder with its cache."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from calibration import CalibrationError
from calibration.bench.attention import make_cache
from calibration.bench.decoder import Decoder
from calibration.bench.points import Point
from calibration.bench.sections import Sections
from calibration.bench.step_batch import StepBatch
from sim.executor.clocks import CpuClock

_STEPS_BETWEEN_PACES = 40


class ModelRunner(Protocol):
    """Computes a batch."""

    def run(self, batch: StepBatch) -> list[int]:
        """Return the next token of every piece that wants one, in the batch's order."""
        ...


class PacedRunner:
    """Runs batches, and now and then times points of the profile; the clock leaves that out.

    `samples` collects the timings by point.
    """

    def __init__(
        self, runner: ModelRunner, clock: CpuClock, sections: Sections, points: Collection[Point]
    ) -> None:
        self.samples: dict[Point, list[float]] = {point: [] for point in points}
        self._runner, self._clock, self._sections = runner, clock, sections
        self._num_steps = 0

    def run(self, batch: StepBatch) -> list[int]:
        """Run the model; every so many steps, time the points."""
        tokens = self._runner.run(batch)
        self._num_steps += 1
        if self._num_steps % _STEPS_BETWEEN_PACES == 1:
            before_s = self._clock.now_s()
            for point, times in self.samples.items():
                times.append(self._sections.measure(point).time_s)
            self._clock.leave_out(self._clock.now_s() - before_s)
        return tokens


class DecoderRunner:
    """The torch decoder with a cache of the scheduler's own number of blocks.

    Raises `CalibrationError` if the memory is too small for the cache.
    """

    def __init__(self, decoder: Decoder, num_gpu_blocks: int, block_size: int) -> None:
        self._decoder = decoder
        self._cache = make_cache(
            decoder.model, num_gpu_blocks, block_size, decoder.device, decoder.dtype
        )

    def run(self, batch: StepBatch) -> list[int]:
        """Run the model and wait for its tokens. Raises `CalibrationError` if the device fails."""
        try:
            return self._decoder.step(batch, self._cache)
        except RuntimeError as error:
            raise CalibrationError(f"{self._decoder.device.name} failed: {error}") from error
