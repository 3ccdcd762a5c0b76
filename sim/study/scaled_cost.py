"""A cost model whose every step takes a constant factor longer: what its error would do."""

from dataclasses import replace

from calibration import CostModel, StepShape
from calibration.cost_model import CostProvenance, FloatArray


class ScaledCost:
    """`inner` with all step times multiplied by `factor`."""

    def __init__(self, inner: CostModel, factor: float) -> None:
        self._inner = inner
        self._factor = factor

    @property
    def provenance(self) -> CostProvenance:
        """The inner model's, with the factor in its label and details."""
        inner = self._inner.provenance
        label = f"{inner.label}, step times x {self._factor:g}"
        return replace(
            inner, label=label, details={**inner.details, "step_time_factor": self._factor}
        )

    def step_time_s(self, shape: StepShape) -> float:
        """Return the scaled time of one step."""
        return self._inner.step_time_s(shape) * self._factor

    def decode_times_s(
        self,
        num_decodes: int,
        decode_context_tokens: int,
        num_steps: int,
        decode_max_context_tokens: int = 0,
    ) -> FloatArray:
        """Return the scaled times of a run of decode steps."""
        times = self._inner.decode_times_s(
            num_decodes, decode_context_tokens, num_steps, decode_max_context_tokens
        )
        return times * self._factor
