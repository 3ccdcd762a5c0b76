"""What runs a batch: the decoder with its cache."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

import numpy as np

from calibration import CalibrationError
from calibration.bench.attention import make_cache
from calibration.bench.decoder import Decoder
from calibration.bench.device import first_line
from calibration.bench.points import Point
from calibration.bench.samples import mean_time_s
from calibration.bench.sections import Sections
from calibration.bench.step_batch import StepBatch
from sim.executor.clocks import CpuClock

T = TypeVar("T")

_STEPS_BETWEEN_PACES = 25
_ROUNDS = 5  # a round is a few percent off, and the pace holds for some seconds


Ready = Callable[[], list[int]]
"""Computes a batch; returns the next token of every piece that wants one, in the batch's order."""


class ModelRunner(Protocol):
    """Computes batches."""

    def prepare(self, batch: StepBatch) -> Ready:
        """Do what the host does before the model runs, and no profile has in its step times."""
        ...


class PacedRunner:
    """Runs batches, and now and then tells the clock the machine's pace; that time is left out.

    The pace is how much longer than in the profile work takes now. It differs with the rows of a
    step: others take memory bandwidth and cache, which steps of few rows need most. So it is
    taken at points of the profile's dense table (`points`, with their times), the mean of the
    last rounds each (the profile holds means, too), and is a straight line over the logarithm of
    rows through all of them: any one point of the profile may be a percent or two off.
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

    def prepare(self, batch: StepBatch) -> Ready:
        """Prepare a batch whose run begins by timing the points, every so many steps."""
        ready = self._runner.prepare(batch)
        return lambda: self._run(ready, len(batch.token_ids))

    def _run(self, ready: Ready, num_rows: int) -> list[int]:
        if self._num_steps and self._num_steps % _STEPS_BETWEEN_PACES == 0:
            self._take_pace(1)
        self._num_steps += 1
        log_rows = np.clip(np.log(num_rows), self._log_rows[0], self._log_rows[-1])
        self._clock.set_pace(float(np.polyval(self._line, log_rows)))
        return ready()

    def _take_pace(self, num_rounds: int) -> None:
        before_s = time.thread_time()
        for _ in range(num_rounds):
            self._rounds.append(
                [self._sections.measure(p).time_s / time_s for p, time_s in self._points.items()]
            )
        self._clock.leave_out(time.thread_time() - before_s)
        paces = [mean_time_s(ratios) for ratios in zip(*self._rounds, strict=True)]
        self._line = np.polyfit(self._log_rows, paces, min(len(paces) - 1, 1))
        self.paces.append(float(np.mean(paces)))


class DecoderRunner:
    """The torch decoder with a cache of the scheduler's own number of blocks.

    Raises `CalibrationError` if the memory is too small for the cache.
    """

    def __init__(self, decoder: Decoder, num_gpu_blocks: int, block_size: int) -> None:
        self._decoder = decoder
        self._cache = make_cache(
            decoder.model, num_gpu_blocks, block_size, decoder.device, decoder.dtype
        )

    def prepare(self, batch: StepBatch) -> Ready:
        """On CUDA, put the batch on the device, where profiles find it; raises as its `Ready`.

        On the CPU that is part of the step, in profiles too. `Ready` runs the model and waits for
        its tokens; it raises `CalibrationError` if the device fails.
        """
        decoder, cache = self._decoder, self._cache
        if not decoder.device.is_cuda:
            return lambda: self._checked(lambda: decoder.step(batch, cache))
        prepared = self._checked(lambda: decoder.prepare(batch))
        decoder.device.synchronize()
        return lambda: self._checked(lambda: decoder.run(prepared, cache))

    def _checked(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except RuntimeError as error:
            name = self._decoder.device.name
            raise CalibrationError(f"{name} failed: {first_line(error)}") from error
