"""A cost model whose steps scatter, as those of a real machine do."""

from typing import NamedTuple

import numpy as np

from calibration import CostModel, StepShape, decode_shape
from calibration.cost_model import CostProvenance, FloatArray
from sim.rng import Streams


class Scatter(NamedTuple):
    """Standard deviations of the logarithm of a step's time, by what the step holds."""

    decodes_only: float
    with_chunks: float

    def __str__(self) -> str:
        return f"{self.decodes_only:.1%} (decodes only) and {self.with_chunks:.1%} (with chunks)"


class ScatteredCost:
    """`inner` with each step's time multiplied by a lognormal factor of mean 1.

    `scatter` says how much the factors differ, `number` chooses one of many draws. The factor hangs
    on the shape and the number alone, so that the model stays pure; shapes hardly repeat within a
    run, as contexts grow.
    """

    def __init__(self, inner: CostModel, scatter: Scatter, number: int) -> None:
        self._inner = inner
        self._scatter = scatter
        self._streams = Streams(number)

    @property
    def provenance(self) -> CostProvenance:
        """The inner model's."""
        return self._inner.provenance

    def step_time_s(self, shape: StepShape) -> float:
        """Return the scattered time of one step."""
        return self._inner.step_time_s(shape) * self._factor(shape)

    def decode_times_s(
        self,
        num_decodes: int,
        decode_context_tokens: int,
        num_steps: int,
        decode_max_context_tokens: int = 0,
    ) -> FloatArray:
        """Return the scattered times of a run of decode steps."""
        times = []
        for i in range(num_steps):
            longest = decode_max_context_tokens + i if decode_max_context_tokens else 0
            context_tokens = decode_context_tokens + i * num_decodes
            times.append(self.step_time_s(decode_shape(num_decodes, context_tokens, longest)))
        return np.array(times)

    def _factor(self, shape: StepShape) -> float:
        name = f"{shape.num_tokens} {shape.num_decodes} {shape.decode_context_tokens}"
        normal = float(self._streams.rng(name).standard_normal())
        sigma = self._scatter.with_chunks if shape.chunks else self._scatter.decodes_only
        return float(np.exp(sigma * normal - 0.5 * sigma**2))
