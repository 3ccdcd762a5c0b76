"""Speculative decoding in the clock: how many drafts are proposed, and how many are accepted.

The scheduler decides how many drafts a step verifies; whether the target model agrees is the
workload's to say. Draws depend on the seed, the request and its position alone, not on the order
of steps, so two policies compared on one seed see the same request accept the same drafts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from sim.scheduler.output import SchedulerOutput
from sim.scheduler.request import RequestId
from sim.sim_request import SimRequest

_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Drafting:
    """What a study says about drafts.

    `acceptance_rates[i]` is the chance that draft i is accepted if all before it were (one
    element a position). `accepted_lengths`, if given, are recorded numbers of accepted drafts,
    taken in turn by every request from a place of its own, and the rates are not used. A request
    gets drafts after a step with chance `proposal_rate` (n-gram lookups often find nothing);
    asynchronous scheduling always schedules the full number. `draft_step_s` is the device time of
    proposing, added to every step that samples.
    """

    num_speculative_tokens: int
    acceptance_rates: tuple[float, ...] = ()
    accepted_lengths: tuple[int, ...] = ()
    proposal_rate: float = 1.0
    draft_step_s: float = 0.0


class DraftModel:
    """Draws proposals and acceptances of one run."""

    def __init__(self, drafting: Drafting, seed: int) -> None:
        self.drafting = drafting
        self._seed = seed

    def sample(
        self, output: SchedulerOutput, requests: Mapping[RequestId, SimRequest]
    ) -> dict[RequestId, int]:
        """Tokens that each sampling request of a step gets: one, and its accepted drafts.

        Counts drafts and acceptances on the requests. Ask when the step's results are due, when
        every earlier token is known. Drafts of an admission are padding and never accepted.
        """
        cached = output.scheduled_cached_reqs
        padded = {data.request_id for data in output.scheduled_new_reqs} | cached.resumed_req_ids
        sampled: dict[RequestId, int] = {}
        for request_id in output.sampling_req_ids:
            num_accepted = 0
            num_drafts = output.scheduled_spec_decode_tokens.get(request_id, 0)
            request = requests.get(request_id)
            if num_drafts and request is not None and request_id not in padded:
                num_accepted = self._num_accepted(request, num_drafts)
                request.num_draft_tokens += num_drafts
                request.num_accepted_tokens += num_accepted
                request.num_verifications += 1
            sampled[request_id] = 1 + num_accepted
        return sampled

    def propose(
        self,
        output: SchedulerOutput,
        running: Collection[RequestId],
        requests: Mapping[RequestId, SimRequest],
    ) -> dict[RequestId, int]:
        """Drafts for the requests of a step that still run."""
        drafts: dict[RequestId, int] = {}
        for request_id in output.num_scheduled_tokens:
            if request_id in running:
                request = requests[request_id]
                finds = self._uniform(request, -1) < self.drafting.proposal_rate
                drafts[request_id] = self.drafting.num_speculative_tokens if finds else 0
        return drafts

    def _num_accepted(self, request: SimRequest, num_drafts: int) -> int:
        recorded: Sequence[int] = self.drafting.accepted_lengths
        if recorded:
            start = _mix(self._seed ^ _mix(request.row_id)) % len(recorded)
            at = (start + request.num_verifications) % len(recorded)
            return min(recorded[at], num_drafts)
        rates = self.drafting.acceptance_rates
        for position in range(num_drafts):
            if self._uniform(request, position) >= rates[position]:
                return position
        return num_drafts

    def _uniform(self, request: SimRequest, position: int) -> float:
        """A number in [0, 1) that belongs to this request, output token and draft position."""
        key = _mix(self._seed ^ _mix(request.row_id))
        key = _mix(key ^ (request.num_output_tokens << 16 | position + 1))
        return (key >> 11) / (1 << 53)


def _mix(value: int) -> int:
    """SplitMix64's finaliser (Steele, Lea and Flood, 2014): a well-mixed 64-bit permutation."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ value >> 30) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ value >> 27) * 0x94D049BB133111EB) & _MASK
    return value ^ value >> 31
