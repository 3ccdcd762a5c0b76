"""What runs a batch: the decoder with its cache."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from typing import Protocol

import numpy as np

from calibration import CalibrationError
from calibration.bench.attention import make_cache
from calibration.bench.decoder import Decoder
from calibration.bench.points import Point
from calibration.bench.sections import Sections
from calibration.bench.step_batch import StepBatch
from sim.executor.clocks import CpuClock

_STEPS_BETWEEN_PACES = 25
_ROUNDS = 5  # a round is a few percent off, and the pace holds for some seconds


class ModelRunner(Protocol):
    """Computes a batch."""

    def run(self, batch: StepBatch) -> list[int]:
        """Return the next token of every piece that wants one, in the batch's order."""
        ...


class PacedRunner:
    """Runs batches, and now and then tells the clock the machine's pace; that time is left out.

    The pace is how much longer than in the profile work takes now. It differs with the rows of a
    step: others take memory bandwidth and cache, which steps of few rows need most. So it is
    taken at points of the profile's dense table (`points`, with their times), the median of the
    last rounds each, and lies on a straight line over the logarithm of rows between them.
    `paces` collects the mean.
    """

    def __init__(
        self,
        runner: ModelRunner,
        clock: CpuClock,
        sections: Sections,
        points: Mapping[Point, float],
    ) -> None:
        self.paces: list[float] = []
        self._log_rows = np.log([point.first for point in points])
        self._runner, self._clock, self._sections = runner, clock, sections
        self._points = points
        self._rounds: deque[list[float]] = deque(maxlen=_ROUNDS)
        self._num_steps = 0
        self._take_pace(_ROUNDS)

    def run(self, batch: StepBatch) -> list[int]:
        """Run the model; every so many steps, time the points."""
        if self._num_steps and self._num_steps % _STEPS_BETWEEN_PACES == 0:
            self._take_pace(1)
        self._num_steps += 1
        rows = np.log(len(batch.token_ids))
        self._clock.set_pace(float(np.interp(rows, self._log_rows, self._pace)))
        return self._runner.run(batch)

    def _take_pace(self, num_rounds: int) -> None:
        before_s = time.thread_time()
        for _ in range(num_rounds):
            self._rounds.append(
                [self._sections.measure(p).time_s / time_s for p, time_s in self._points.items()]
            )
        self._clock.leave_out(time.thread_time() - before_s)
        self._pace = np.median(list(self._rounds), axis=0)
        self.paces.append(float(np.mean(self._pace)))


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
