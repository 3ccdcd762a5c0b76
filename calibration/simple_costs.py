"""Cost models for theory and tests: a constant, and a straight line."""

from typing import Any

import numpy as np

from calibration.checks import require_seconds
from calibration.cost_model import CostProvenance, FloatArray
from calibration.errors import CalibrationError
from calibration.step_shape import StepShape


class ConstantCost:
    """Every step takes `step_s` seconds: a batch of one makes the replica an M/D/1 queue."""

    def __init__(self, step_s: float) -> None:
        self.step_s = require_seconds("step_s", step_s, positive=True)

    @property
    def provenance(self) -> CostProvenance:
        """Where the times come from."""
        label = f"constant: {self.step_s:g} s a step, not calibrated"
        return CostProvenance("constant", label, False, {"step_s": self.step_s})

    def step_time_s(self, shape: StepShape) -> float:
        """Return the constant."""
        return self.step_s

    def decode_times_s(
        self,
        num_decodes: int,
        decode_context_tokens: int,
        num_steps: int,
        decode_max_context_tokens: int = 0,
    ) -> FloatArray:
        """Return the constant `num_steps` times."""
        return np.full(num_steps, self.step_s, dtype=np.float64)

    def compiled_form(self) -> dict[str, Any]:
        """Return the constant."""
        return {"kind": "constant", "step_s": self.step_s}


class LinearCost:
    """A straight line in what the batch computes and reads.

    time = base_s + per_token_s * num_tokens + per_logit_s * num_logits
         + per_context_token_s * (KV entries read by all pieces)

    A decode reads its context; a chunk reads what was computed before and its own tokens.
    """

    def __init__(
        self,
        base_s: float,
        per_token_s: float = 0.0,
        per_context_token_s: float = 0.0,
        per_logit_s: float = 0.0,
    ) -> None:
        self.base_s = require_seconds("base_s", base_s)
        self.per_token_s = require_seconds("per_token_s", per_token_s)
        self.per_context_token_s = require_seconds("per_context_token_s", per_context_token_s)
        self.per_logit_s = require_seconds("per_logit_s", per_logit_s)
        if self.base_s + self.per_token_s <= 0:
            raise CalibrationError(
                "base_s and per_token_s are both 0; a step would take no time: give one of them"
            )

    @property
    def provenance(self) -> CostProvenance:
        """Where the times come from."""
        details = {
            "base_s": self.base_s,
            "per_token_s": self.per_token_s,
            "per_context_token_s": self.per_context_token_s,
            "per_logit_s": self.per_logit_s,
        }
        label = (
            f"linear: {self.base_s:g} s + {self.per_token_s:g} s a token"
            f" + {self.per_context_token_s:g} s a context token"
            f" + {self.per_logit_s:g} s a logit row, not calibrated"
        )
        return CostProvenance("linear", label, False, details)

    def step_time_s(self, shape: StepShape) -> float:
        """Return the time of the step on the line."""
        num_tokens, num_logits, _, context, chunks, _ = shape
        for new, computed in chunks:
            context += new + computed
        fixed_s = self.base_s + self.per_token_s * num_tokens + self.per_logit_s * num_logits
        return fixed_s + self.per_context_token_s * context

    def decode_times_s(
        self,
        num_decodes: int,
        decode_context_tokens: int,
        num_steps: int,
        decode_max_context_tokens: int = 0,
    ) -> FloatArray:
        """Return the times of decode steps in a row; only the context changes."""
        contexts = decode_context_tokens + num_decodes * np.arange(num_steps, dtype=np.int64)
        fixed_s = self.base_s + self.per_token_s * num_decodes + self.per_logit_s * num_decodes
        times_s: FloatArray = fixed_s + self.per_context_token_s * contexts.astype(np.float64)
        return times_s

    def compiled_form(self) -> dict[str, Any]:
        """Return the coefficients."""
        return {
            "kind": "linear",
            "base_s": self.base_s,
            "per_token_s": self.per_token_s,
            "per_context_token_s": self.per_context_token_s,
            "per_logit_s": self.per_logit_s,
        }
