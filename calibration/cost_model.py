"""The Protocol of a cost model, and where its numbers come from."""

from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from calibration.step_shape import StepShape

FloatArray: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class CostProvenance:
    """Where step times come from; saved with every result.

    Attributes:
        kind: constant, linear, roofline or profile.
        label: one line for the table of results.
        calibrated: True only if the times rest on measurements of the device.
        details: inputs of the model, as plain JSON values.
    """

    kind: str
    label: str
    calibrated: bool
    details: dict[str, Any] = field(default_factory=dict)


class CostModel(Protocol):
    """How long the device takes for a batch.

    Pure: the same shape gives the same time, whatever was asked before. Times are finite, in
    seconds, and more than 0 for a batch of at least one token.
    """

    @property
    def provenance(self) -> CostProvenance:
        """Where the times come from."""
        ...

    def step_time_s(self, shape: StepShape) -> float:
        """Return the device time of one step, in seconds."""
        ...

    def decode_times_s(
        self,
        num_decodes: int,
        decode_context_tokens: int,
        num_steps: int,
        decode_max_context_tokens: int = 0,
    ) -> FloatArray:
        """Return the times of `num_steps` pure decode steps in a row, in seconds.

        Step i reads `decode_context_tokens + i * num_decodes` KV entries, at most
        `decode_max_context_tokens + i` of one request (0: not known). Element i equals
        `step_time_s` of that step's shape bit for bit, so skipping steps changes no result.
        """
        ...


@runtime_checkable
class HasCompiledForm(Protocol):
    """A cost model whose formula a compiled simulator knows by its kind."""

    def compiled_form(self) -> dict[str, Any]:
        """Return `kind` and the numbers of its formula, under the names that the kind has.

        Whoever computes with them must do the same operations in the same order as `step_time_s`.
        A subclass that changes the times must override this too.
        """
        ...


@runtime_checkable
class HasCoverage(Protocol):
    """A cost model that knows where its measurements end."""

    def out_of_range(self, shape: StepShape) -> str | None:
        """Return why `shape` lies beyond the measurements, None if it does not."""
        ...
