"""LLMServingSim's bench, requests.jsonl: instants of real vLLM requests.

arrival_time is of one clock, queued_ts to last_token_ts of another, so latencies count from
queued_ts, as upstream does: TTFT = first_token - queued, E2E = last_token - queued.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import nan

from traces.columns import ColumnNames
from traces.json_rows import Record
from traces.measured.results import Measured, MeasuredRequest

NAMES = ColumnNames(
    ("input_toks", "output_toks", "arrival_time", "queued_ts", "first_token_ts", "last_token_ts"),
    ("request_id", "scheduled_ts"),
)
NOTES = ("latencies count from queued_ts: arrival_time is of another clock",)


def parse(path: str, records: Iterable[Record]) -> Measured:
    """The requests of a file."""
    return Measured(path, "llmservingsim bench", tuple(map(_request, records)), NOTES)


def _request(record: Record) -> MeasuredRequest:
    queued_s, first_s, last_s = (
        record.seconds(key) for key in ("queued_ts", "first_token_ts", "last_token_ts")
    )
    output = record.integer("output_toks")
    return MeasuredRequest(
        record.seconds("arrival_time"),
        record.integer("input_toks"),
        output,
        ttft_s=first_s - queued_s,
        tpot_s=(last_s - first_s) / (output - 1) if output > 1 else nan,
        e2e_s=last_s - queued_s,
    )
