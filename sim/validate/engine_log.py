"""What a real engine did: steps as its scheduler logged them, requests as a client saw them.

All instants are seconds of one monotonic clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from calibration import StepShape
from sim.errors import StudyError

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LoggedStep:
    """One step. `shape` is what a cost model may see of it.

    Instants: the scheduler begins (`schedule_s`), the worker begins (`device_start_s`) and has
    the tokens (`device_end_s`), the scheduler has processed them (`update_end_s`). What lies
    between the middle two is the worker's: inputs, model, sampler, and the way there and back.
    `num_unfinished` requests are left after it.
    """

    shape: StepShape
    num_requests: int
    num_preempted: int
    num_unfinished: int
    schedule_s: float
    device_start_s: float
    device_end_s: float
    update_end_s: float


@dataclass(frozen=True, slots=True)
class ServedRequest:
    """One request. `received_s`: it reached the engine's process; the rest is the client's."""

    arrival_s: float
    sent_s: float
    received_s: float
    first_token_s: float
    last_token_s: float
    num_output_tokens: int


@dataclass(frozen=True, slots=True)
class EngineRun:
    """Requests in the order in which they were given, and steps in order of time."""

    requests: tuple[ServedRequest, ...]
    steps: tuple[LoggedStep, ...]

    def seen_by_client(self) -> dict[str, FloatArray]:
        """TTFT, TPOT (NaN for one token) and E2E from the planned arrivals."""
        return self._times(self._column("arrival_s"), *self._tokens())

    def seen_by_engine(self) -> dict[str, FloatArray]:
        """The same inside the engine's process: from the request's coming to the steps' ends."""
        return self._times(self._column("received_s"), *map(self._step_before, self._tokens()))

    def delays(self) -> dict[str, FloatArray]:
        """Seconds on the way, of each request: none of them is in a simulation."""
        sent, first = self._column("sent_s"), self._column("first_token_s")
        return {
            "client late": sent - self._column("arrival_s"),
            "way to the engine": self._column("received_s") - sent,
            "way back of the first token": first - self._step_before(first),
        }

    def _tokens(self) -> tuple[FloatArray, FloatArray]:
        return self._column("first_token_s"), self._column("last_token_s")

    def _column(self, name: str) -> FloatArray:
        return np.array([getattr(request, name) for request in self.requests], dtype=np.float64)

    def _step_before(self, seen_s: FloatArray) -> FloatArray:
        """The end of the last step that was over when a token was seen: it made the token."""
        ends = np.array([step.device_end_s for step in self.steps])
        return ends[np.maximum(np.searchsorted(ends, seen_s, side="right") - 1, 0)]

    def _times(
        self, arrival: FloatArray, first: FloatArray, last: FloatArray
    ) -> dict[str, FloatArray]:
        outputs = self._column("num_output_tokens")
        gaps = np.where(outputs > 1, outputs - 1, np.nan)
        return {"TTFT": first - arrival, "TPOT": (last - first) / gaps, "E2E": last - arrival}


def parse_run(answer: Mapping[str, Any]) -> EngineRun:
    """Return the run in the worker's answer.

    Raises:
        StudyError: an entry is missing or of another form: another version of the worker or vLLM.
    """
    try:
        received = {name: at_s for row in answer["steps"] for name, at_s in row["received"].items()}
        requests = tuple(
            ServedRequest(
                row["arrival_s"],
                row["sent_s"],
                received[row["id"]],
                row["first_token_s"],
                row["last_token_s"],
                row["num_output_tokens"],
            )
            for row in answer["requests"]
        )
        return EngineRun(requests, tuple(_step(row) for row in answer["steps"]))
    except (KeyError, TypeError, ValueError) as error:
        raise StudyError(
            f"the engine's log can't be read: {type(error).__name__}: {error}"
        ) from error


def _step(row: Mapping[str, Any]) -> LoggedStep:
    return LoggedStep(
        shape_of(row["pieces"]),
        len(row["pieces"]),
        row["preempted"],
        row["unfinished"],
        row["schedule_s"],
        row["device_start_s"],
        row["device_end_s"],
        row["update_end_s"],
    )


def shape_of(pieces: Sequence[Sequence[int]]) -> StepShape:
    """Return the shape of pieces: new tokens, tokens computed before, 1 if a token comes out."""
    decodes = [computed + 1 for new, computed, _ in pieces if new == 1]
    return StepShape(
        num_tokens=sum(new for new, _, _ in pieces),
        num_logits=sum(emits for _, _, emits in pieces),
        num_decodes=len(decodes),
        decode_context_tokens=sum(decodes),
        chunks=tuple((new, computed) for new, computed, _ in pieces if new > 1),
        decode_max_context_tokens=max(decodes, default=0),
    )
