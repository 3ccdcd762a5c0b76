"""One GPU's share of a model in a tensor-parallel group, and the group's all-reduces.

A share is timed on one device as if it were a model of its own; what the group adds are
all-reduces, timed apart. No torch here.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from calibration.bench.axes import Limits
from calibration.model_spec import ModelSpec
from calibration.profile_format import Profile
from calibration.profile_tables import CurveTable

_PER_LAYER = 2  # after attention and after the MLP
_DIGITS = 6


@dataclass(frozen=True, slots=True)
class AllReduceTimes:
    """Microseconds of one all-reduce by the bytes of its message, ascending."""

    backend: str
    num_ranks: int
    message_bytes: tuple[int, ...]
    time_us: tuple[float, ...]

    def at(self, message_bytes: float) -> float:
        """Return the time of a message: straight lines, in proportion beyond the last point."""
        beyond = max(message_bytes / self.message_bytes[-1], 1.0)
        return beyond * float(np.interp(message_bytes, self.message_bytes, self.time_us))

    def to_json(self) -> dict[str, Any]:
        """Return the times for a profile's `fit`."""
        times = [float(f"{time_us:.4g}") for time_us in self.time_us]
        return {
            "backend": self.backend,
            "num_ranks": self.num_ranks,
            "message_bytes": list(self.message_bytes),
            "time_us": times,
        }


def share_of(model: ModelSpec, tensor_parallel_size: int) -> ModelSpec:
    """Return one GPU's share as a model: its heads, its part of the MLP and of the vocabulary.

    Raises:
        CalibrationError: the model can't be split so.
    """
    tp = tensor_parallel_size
    model.check_tensor_parallel(tp)
    return replace(
        model,
        num_attention_heads=model.num_attention_heads // tp,
        num_key_value_heads=model.kv_heads_per_rank(tp),
        intermediate_size=model.intermediate_size // tp,
        vocab_size=-(-model.vocab_size // tp),
    )


def message_sizes(model: ModelSpec, limits: Limits) -> list[int]:
    """Return the sizes to time: from one token's hidden state to the largest step's, doubling."""
    sizes = [model.hidden_size * model.dtype_bytes]
    while sizes[-1] < limits.max_num_batched_tokens * sizes[0]:
        sizes.append(2 * sizes[-1])
    return sizes


def with_all_reduces(profile: Profile, times: AllReduceTimes, model: ModelSpec) -> Profile:
    """Return the profile of a share with the group's all-reduces added, and recorded in its fit.

    Two a layer of the hidden states; for logits a gather, which is half an all-reduce.
    """
    row_bytes = model.hidden_size * model.dtype_bytes
    count = _PER_LAYER * model.num_hidden_layers
    dense = [count * times.at(tokens * row_bytes) for tokens in profile.dense.axis]
    logits_bytes = model.vocab_size * model.dtype_bytes
    logits = [times.at(rows * logits_bytes) / 2 for rows in profile.logits.axis]
    return replace(
        profile,
        dense=_added(profile.dense, dense),
        logits=_added(profile.logits, logits),
        fit={
            **profile.fit,
            "all_reduce": times.to_json(),
            "held_out_steps_are": "of one GPU's share, without all-reduces",
        },
    )


def _added(table: CurveTable, more_us: list[float]) -> CurveTable:
    times = (a + b for a, b in zip(table.time_us, more_us, strict=True))
    return replace(table, time_us=tuple(float(f"{time_us:.{_DIGITS}g}") for time_us in times))
