"""A request in the simulation: the scheduler's request and its instants."""

from __future__ import annotations

from math import inf, nan
from typing import Any

from sim.scheduler.request import Request
from sim.time_split import TimeSplit

Row = tuple[Any, ...]


class SimRequest(Request):
    """`Request` with the instants (simulated seconds) that the clock stamps on it.

    NaN: it has not happened. `first_token_s` is stamped once; a preemption does not restamp it.
    """

    __slots__ = (
        "deadline_s",
        "first_scheduled_s",
        "first_token_s",
        "last_token_s",
        "num_accepted_tokens",
        "num_draft_tokens",
        "num_verifications",
        "predicted_output_tokens",
        "row_id",
        "split",
        "tenant",
    )

    split: TimeSplit  # there only in a run that explains waits

    def __init__(
        self, request_id: int, num_prompt_tokens: int, max_tokens: int, **options: Any
    ) -> None:
        super().__init__(request_id, num_prompt_tokens, max_tokens, **options)
        self.row_id = request_id
        # What queue policies may see beside the rest.
        self.tenant: str | None = None
        self.deadline_s = inf
        self.predicted_output_tokens = 1.0
        self.first_scheduled_s = nan
        self.first_token_s = nan
        self.last_token_s = nan
        self.num_draft_tokens = 0
        self.num_accepted_tokens = 0
        self.num_verifications = 0

    def to_row(self, replica: int, state: str, reason: str) -> Row:
        """Its row of `records.REQUEST_COLUMNS`."""
        return (
            self.row_id,
            replica,
            self.arrival_time,
            self.priority,
            self.num_prompt_tokens,
            self.max_tokens,
            self.num_output_tokens,
            state,
            reason,
            self.first_scheduled_s,
            self.first_token_s,
            self.last_token_s,
            self.num_cached_tokens,
            self.num_readmission_cached_tokens,
            self.num_preemptions,
            self.num_preempted_tokens,
            self.num_rejected_tokens,
            self.num_draft_tokens,
            self.num_accepted_tokens,
            self.num_verifications,
            self.num_scheduled_tokens,
            self.num_computed_tokens,
        )
