"""Measured requests in our own definitions, whatever the tool that wrote them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import nan
from typing import Any

import numpy as np
import numpy.typing as npt

from traces.arrays import FloatArray, IntArray
from traces.labels import Labels
from traces.request import NO_PARENT


@dataclass(slots=True)
class MeasuredRequest:
    """One request as a tool recorded it; NaN: not recorded. Seconds.

    `ttft_s` first token - sending; `tpot_s` (last token - first token) / (output tokens - 1);
    `e2e_s` last token - sending; `gaps_s` the time between tokens or, where the tool counts so,
    between the pieces that came over the wire. `failure` is empty for a request that succeeded.
    """

    sent_s: float
    num_prompt_tokens: int
    num_output_tokens: int
    ttft_s: float = nan
    tpot_s: float = nan
    e2e_s: float = nan
    gaps_s: list[float] = field(default_factory=list)
    failure: str = ""
    session_id: str | None = None
    parent: int = NO_PARENT
    think_time_s: float = nan


@dataclass(frozen=True, slots=True)
class Measured:
    """A measured run, a row a request in the order of the file.

    Attributes:
        name: the file.
        tool: who wrote it.
        requests: all of them, failed ones too.
        notes: where the tool's own figures are defined otherwise, one sentence each.
    """

    name: str
    tool: str
    requests: tuple[MeasuredRequest, ...]
    notes: tuple[str, ...] = ()

    @property
    def succeeded(self) -> list[MeasuredRequest]:
        """The requests that enter statistics."""
        return [request for request in self.requests if not request.failure]

    @property
    def num_failed(self) -> dict[str, int]:
        """How many failed, by reason."""
        reasons = [request.failure for request in self.requests if request.failure]
        return {reason: reasons.count(reason) for reason in sorted(set(reasons))}

    def values(self, field_name: str) -> npt.NDArray[Any]:
        """A field of all requests that succeeded and have it."""
        column = np.array([getattr(each, field_name) for each in self.succeeded], dtype=np.float64)
        return column[~np.isnan(column)]

    @property
    def gaps_s(self) -> FloatArray:
        """All recorded gaps, pooled; empty where the tool does not record them."""
        return np.array([gap for each in self.succeeded for gap in each.gaps_s], dtype=np.float64)


def sent_columns(requests: Iterable[MeasuredRequest]) -> dict[str, Any]:
    """What was sent, as columns of a `Chunk`; failed requests have no output."""
    rows = list(requests)
    outputs: IntArray = np.array(
        [0 if each.failure else each.num_output_tokens for each in rows], dtype=np.int64
    )
    return {
        "times": np.array([0.0 if np.isnan(each.sent_s) else each.sent_s for each in rows]),
        "num_prompt_tokens": np.array([each.num_prompt_tokens for each in rows], dtype=np.int64),
        "num_output_tokens": outputs,
        "session_id": Labels.from_values(each.session_id for each in rows),
        "parent_id": np.array([each.parent for each in rows], dtype=np.int64),
        "think_time_s": np.array([each.think_time_s for each in rows]),
    }
