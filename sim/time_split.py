"""Why did it wait? Every request's time from arrival to end, split by cause.

The split costs nothing that grows with the queue. A replica keeps clocks; a request remembers what
they showed when something began for it, and reads them again when that ends:

- From its arrival to the next decision it waits for the step under way to end.
- Between two decisions all that wait do so for the same reason, the one that ended admission,
  but for those passed over (LoRA cap) and the next in line where it was refused for its own
  needs: it waits for them, and the others for it. So there is one clock a reason.
- A preempted request waits to be readmitted, whatever it is that admission lacks.
- While it runs, the time from one result of the replica to the next is that of what the request
  did in the step between: computed again what a preemption lost, computed its prompt, decoded,
  or was left out of it (the budget, or a preemption, ended before its turn).
- Of a step in which it decoded, the part beyond the time that the cost model gives for the same
  step without the pieces of prompts is a stall by others' prefill; it is never more than the
  time between the two results. Stalls of all steps are one more clock.

Each stretch is counted once, so the parts sum to the time from arrival to last token.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from calibration import CostModel, StepShape
from sim.scheduler.output import AdmissionEnd, SchedulerOutput
from sim.scheduler.request import RequestId

if TYPE_CHECKING:
    from sim.sim_request import SimRequest


class Cause(IntEnum):
    """What a request's time went to; the value is its place in `TimeSplit.parts_s`."""

    NEXT_STEP = 0
    TOKEN_BUDGET = 1
    MAX_NUM_SEQS = 2
    KV_BLOCKS = 3
    HEAD_OF_LINE = 4
    LORA_CAP = 5
    PREEMPTED = 6
    RECOMPUTING = 7
    PREFILLING = 8
    DECODING = 9
    OTHERS_PREFILL = 10

    @property
    def column(self) -> str:
        """The column of the request rows that holds it, in seconds."""
        return f"spent_{self.name.lower()}_s"


MEANINGS: dict[Cause, str] = {
    Cause.NEXT_STEP: "waiting for the step under way to end",
    Cause.TOKEN_BUDGET: "waiting for the token budget",
    Cause.MAX_NUM_SEQS: "waiting for a seat (max_num_seqs)",
    Cause.KV_BLOCKS: "waiting for KV blocks",
    Cause.HEAD_OF_LINE: "waiting behind the head of the line",
    Cause.LORA_CAP: "waiting for the LoRA cap (max_loras)",
    Cause.PREEMPTED: "preempted, waiting to come back",
    Cause.RECOMPUTING: "computing again what a preemption lost",
    Cause.PREFILLING: "computing its prompt",
    Cause.DECODING: "decoding",
    Cause.OTHERS_PREFILL: "decoding, stalled by others' prefill",
}

SPLIT_COLUMNS: dict[str, Any] = {cause.column: np.float64 for cause in Cause}

WAITS = tuple(cause for cause in Cause if cause <= Cause.PREEMPTED)
"""The causes for which nothing is computed for the request."""

_GENERAL = {
    AdmissionEnd.NOBODY_LEFT: Cause.NEXT_STEP,
    AdmissionEnd.TOKEN_BUDGET: Cause.TOKEN_BUDGET,
    AdmissionEnd.MAX_NUM_SEQS: Cause.MAX_NUM_SEQS,
    AdmissionEnd.PREEMPTION: Cause.KV_BLOCKS,
    AdmissionEnd.HEAD_NEEDS_BUDGET: Cause.HEAD_OF_LINE,
    AdmissionEnd.HEAD_NEEDS_BLOCKS: Cause.HEAD_OF_LINE,
}
_OF_THE_HEAD = {
    AdmissionEnd.HEAD_NEEDS_BUDGET: Cause.TOKEN_BUDGET,
    AdmissionEnd.HEAD_NEEDS_BLOCKS: Cause.KV_BLOCKS,
}


class _State(Enum):
    FRESH = "arrived since the last decision"
    WAITING = "seen by a decision and not admitted"
    PREEMPTED = "preempted"
    LAGGING = "running, with known tokens to compute"
    DECODING = "running, one step a token"
    ENDED = "ended"


class TimeSplit:
    """One request's time by cause: `parts_s[cause]` seconds so far. The rest is the clock's."""

    __slots__ = (
        "clocks",
        "num_lost_tokens",
        "num_preempted_tokens",
        "parts_s",
        "phase",
        "since_s",
        "state",
    )

    def __init__(self, arrival_s: float) -> None:
        self.parts_s = [0.0] * len(Cause)
        self.state = _State.FRESH
        self.since_s = arrival_s
        self.clocks: tuple[float, ...] = ()  # what the clocks of its state showed then
        self.phase = Cause.PREFILLING  # of what it computes while it lags
        self.num_lost_tokens = 0  # the furthest progress that a preemption took
        self.num_preempted_tokens = 0


class _Piece(NamedTuple):
    """A part of a step in which a request computes known tokens, `start` of them done before."""

    request: SimRequest
    cause: Cause
    start: int
    num_tokens: int
    samples: bool


class _Planned(NamedTuple):
    """What the results of a step on its way will mean for the splits."""

    pieces: list[_Piece]
    left_out: list[SimRequest]
    left_out_cause: Cause
    stall_s: float


_ONLY_DECODES = _Planned([], [], Cause.TOKEN_BUDGET, 0.0)


class SplitClock:
    """The clocks of one replica. It is told of every event in the order in which they happen.

    `requests` are the replica's, by id; each gets its `split` when it arrives.
    """

    def __init__(self, requests: Mapping[RequestId, SimRequest], cost: CostModel) -> None:
        self._requests = requests
        self._cost = cost
        self._fresh: list[SimRequest] = []
        self._apart: list[tuple[TimeSplit, Cause]] = []
        self._cause = Cause.NEXT_STEP  # of all that wait and are not set apart
        self._decided_s = 0.0
        self._waits_s = [0.0] * len(Cause)
        self._stall_s = 0.0
        self._result_s = 0.0
        self._planned: deque[_Planned] = deque()

    def arrived(self, request: SimRequest) -> None:
        """A request arrived; the next decision sees it."""
        request.split = TimeSplit(request.arrival_time)
        self._fresh.append(request)

    def decided(self, now: float, output: SchedulerOutput) -> None:
        """A step was decided."""
        self.decided_again(now)
        for request_id in output.preempted_req_ids:
            self._preempted(self._requests[request_id], now)
        for data in output.scheduled_new_reqs:
            self._begin(self._requests[data.request_id].split, _State.LAGGING, now)
        for request_id in output.scheduled_cached_reqs.resumed_req_ids:
            self._begin(self._requests[request_id].split, _State.LAGGING, now)
        self._cause = _GENERAL[output.admission_end]
        self._apart.clear()
        if output.refused_req_id is not None:
            self._set_apart(output.refused_req_id, _OF_THE_HEAD[output.admission_end], now)
        for request_id in output.skipped_req_ids:
            self._set_apart(request_id, Cause.LORA_CAP, now)

    def decided_again(self, now: float) -> None:
        """Decisions begin that will all end admission as the last one did."""
        self._advance(now)
        for request in self._fresh:
            self._begin(request.split, _State.WAITING, now)
        self._fresh.clear()

    def planned(
        self, output: SchedulerOutput, shape: StepShape, left_out: Iterable[SimRequest]
    ) -> None:
        """The step just decided is on its way; `left_out` run, but have no part in it."""
        pieces = self._pieces(output)
        cause = Cause.KV_BLOCKS if output.preempted_req_ids else Cause.TOKEN_BUDGET
        planned = _Planned(pieces, list(left_out), cause, self._stall(shape, pieces))
        self._planned.append(planned)

    def planned_decodes(self) -> None:
        """A step is on its way in which every running request decodes."""
        self._planned.append(_ONLY_DECODES)

    def processed(self, now: float) -> None:
        """The results of the oldest step on its way are known."""
        planned = self._planned.popleft()
        for request in planned.left_out:
            self._leave_out(request.split, planned.left_out_cause, now)
        stall_s = min(planned.stall_s, now - self._result_s)
        self._stall_s += stall_s
        for request in planned.left_out:
            if request.split.state is _State.DECODING:
                request.split.clocks = (self._stall_s,)
        for piece in planned.pieces:
            split = piece.request.split
            if split.state is _State.LAGGING:
                split.parts_s[piece.cause] += now - split.since_s
                split.since_s = now
                if piece.samples:
                    split.state = _State.DECODING
                    split.clocks = (self._stall_s,)
        self._result_s = now

    def leapt(self, now: float) -> None:
        """Steps in which every running request decoded are over; the last results came now."""
        self._result_s = now

    def ended(self, request: SimRequest, end_s: float) -> None:
        """A request ended, or the run did."""
        if request.split.state is _State.WAITING:
            self._advance(end_s)
        self._begin(request.split, _State.ENDED, end_s)

    def _advance(self, now: float) -> None:
        """Count the time since the last decision to those that waited through it."""
        elapsed_s = now - self._decided_s
        self._waits_s[self._cause] += elapsed_s
        self._decided_s = now
        for split, cause in self._apart:
            if split.state is _State.WAITING:
                split.parts_s[cause] += elapsed_s
                split.clocks = tuple(self._waits_s)

    def _begin(self, split: TimeSplit, state: _State, now: float) -> None:
        """Close what was, and begin a new state."""
        self._settle(split, now)
        split.state = state
        split.since_s = now
        split.clocks = tuple(self._waits_s) if state is _State.WAITING else ()

    def _settle(self, split: TimeSplit, now: float) -> None:
        elapsed_s = now - split.since_s
        parts_s = split.parts_s
        if split.state is _State.FRESH:
            parts_s[Cause.NEXT_STEP] += elapsed_s
        elif split.state is _State.WAITING:
            for cause, (after, before) in enumerate(zip(self._waits_s, split.clocks, strict=True)):
                parts_s[cause] += after - before
        elif split.state is _State.PREEMPTED:
            parts_s[Cause.PREEMPTED] += elapsed_s
        elif split.state is _State.LAGGING:
            parts_s[split.phase] += elapsed_s
        elif split.state is _State.DECODING:
            stall_s = self._stall_s - split.clocks[0]
            parts_s[Cause.OTHERS_PREFILL] += stall_s
            parts_s[Cause.DECODING] += elapsed_s - stall_s

    def _preempted(self, request: SimRequest, now: float) -> None:
        split = request.split
        self._begin(split, _State.PREEMPTED, now)
        num_lost = request.num_preempted_tokens - split.num_preempted_tokens
        split.num_preempted_tokens = request.num_preempted_tokens
        split.num_lost_tokens = max(split.num_lost_tokens, num_lost)

    def _set_apart(self, request_id: RequestId, cause: Cause, now: float) -> None:
        split = self._requests[request_id].split
        if split.state is _State.WAITING:
            self._begin(split, _State.WAITING, now)
            self._apart.append((split, cause))

    def _pieces(self, output: SchedulerOutput) -> list[_Piece]:
        """The parts of requests in the step just decided, but for those that decode."""
        pieces: list[_Piece] = []
        for request_id, num_tokens in output.num_scheduled_tokens.items():
            request = self._requests[request_id]
            split = request.split
            start = request.num_computed_tokens - num_tokens
            if start < split.num_lost_tokens:
                split.phase = Cause.RECOMPUTING
            elif start < request.num_prompt_tokens:
                split.phase = Cause.PREFILLING
            else:
                continue
            pieces.append(
                _Piece(request, split.phase, start, num_tokens, not request.is_prefill_chunk)
            )
        return pieces

    def _stall(self, shape: StepShape, pieces: list[_Piece]) -> float:
        """Seconds by which pieces of prompts lengthen a step of this shape for those who decode."""
        if not pieces or shape.num_tokens == sum(piece.num_tokens for piece in pieces):
            return 0.0
        alone_s = self._cost.step_time_s(_without(shape, pieces))
        return max(self._cost.step_time_s(shape) - alone_s, 0.0)

    def _leave_out(self, split: TimeSplit, cause: Cause, now: float) -> None:
        if split.state is _State.DECODING:
            self._begin(split, _State.DECODING, self._result_s)
        elif split.state is not _State.LAGGING:
            return
        split.parts_s[cause] += now - split.since_s
        split.since_s = now


def _without(shape: StepShape, pieces: Iterable[_Piece]) -> StepShape:
    """The shape of a step without some of its pieces."""
    num_tokens, num_logits, num_decodes = shape.num_tokens, shape.num_logits, shape.num_decodes
    context_tokens = shape.decode_context_tokens
    chunks = list(shape.chunks)
    for piece in pieces:
        num_tokens -= piece.num_tokens
        num_logits -= piece.samples
        if piece.num_tokens == 1:
            num_decodes -= 1
            context_tokens -= piece.start + 1
        else:
            chunks.remove((piece.num_tokens, piece.start))
    # Which context is the longest of the others is not known: they count as spread as before.
    longest = shape.decode_max_context_tokens if num_decodes else 0
    return StepShape(num_tokens, num_logits, num_decodes, context_tokens, tuple(chunks), longest)
