"""aiperf `profile_export.jsonl`: one record a request, metadata and metrics with their units.

Documented at docs.nvidia.com/aiperf (working with profile export files); no sample was at hand.
Its inter_token_latency is one mean a request, our TPOT; inter_chunk_latency lists the gaps.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import nan
from typing import Any

from traces.json_rows import Record
from traces.measured.results import Measured, MeasuredRequest

_PER_S = {"s": 1.0, "sec": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
NOTES = (
    "aiperf's inter_token_latency is one mean a request: it is compared with TPOT, not with the "
    "pooled ITL",
    "output tokens are output_sequence_length, which counts reasoning tokens",
)
_METRIC_RIGHT = 'an object such as {"value": 12.5, "unit": "ms"}'


_Sessions = dict[str, tuple[int, float]]
"""The row of the last turn of each session, and when it ended, nanoseconds."""


class Parser:
    """Reads records, and remembers the last turn of every session.

    Warm-up requests are left out of statistics, as failures are.
    """

    def __init__(self) -> None:
        self._sessions: _Sessions = {}

    def __call__(self, path: str, records: Iterable[Record]) -> Measured:
        """The requests of some records."""
        requests = tuple(_request(record, self._sessions) for record in records)
        return Measured(path, "aiperf", requests, NOTES)


def _request(record: Record, sessions: _Sessions) -> MeasuredRequest:
    about, metrics = _object(record, "metadata"), _object(record, "metrics")
    inner = Record(record.row, record.path, record.place, about)
    start_ns = _nanoseconds(inner, "request_start_ns")
    request = MeasuredRequest(
        start_ns / 1e9,
        _tokens(record, metrics, "input_sequence_length", "error_isl"),
        _tokens(record, metrics, "output_sequence_length", "output_token_count"),
        ttft_s=_seconds(record, metrics, "time_to_first_token"),
        tpot_s=_seconds(record, metrics, "inter_token_latency"),
        e2e_s=_seconds(record, metrics, "request_latency"),
        gaps_s=_gaps(record, metrics),
        failure=_failure(record, about),
    )
    _join_session(inner, request, start_ns, sessions)
    return request


def _join_session(
    about: Record, request: MeasuredRequest, start_ns: int, sessions: _Sessions
) -> None:
    session = about.text("x_correlation_id") or about.text("conversation_id")
    turn = about.values.get("turn_index")
    if session is None or type(turn) is not int or request.failure:
        return
    request.session_id = session
    if turn > 0 and session in sessions:
        request.parent, end_ns = sessions[session]
        request.think_time_s = max((start_ns - end_ns) / 1e9, 0.0)
    end = about.values.get("request_end_ns")
    sessions[session] = about.row, float(end) if type(end) is int else nan


def _object(record: Record, key: str) -> dict[str, Any]:
    value = record.values.get(key)
    if isinstance(value, dict):
        return value
    if key == "metrics" and value is None:
        return {}
    raise record.bad(key, value, "an object")


def _nanoseconds(about: Record, key: str) -> int:
    value = about.values.get(key)
    if type(value) is int and 0 <= value < 2**63:
        return value
    raise about.bad(key, value, "a whole number of nanoseconds since 1970")


def _metric(record: Record, metrics: dict[str, Any], key: str) -> tuple[Any, float] | None:
    """The value of a metric and how many of its units make a second (1 for tokens)."""
    found = metrics.get(key)
    if found is None:
        return None
    if not (isinstance(found, dict) and "value" in found):
        raise record.bad(key, found, _METRIC_RIGHT)
    return found["value"], _PER_S.get(found.get("unit", ""), 1.0)


def _seconds(record: Record, metrics: dict[str, Any], key: str) -> float:
    found = _metric(record, metrics, key)
    if found is None:
        return nan
    value, per_s = found
    if type(value) not in (int, float) or value < 0:
        raise record.bad(key, value, "a number >= 0")
    return float(value) / per_s


def _tokens(record: Record, metrics: dict[str, Any], *keys: str) -> int:
    for key in keys:
        found = _metric(record, metrics, key)
        if found is not None:
            return Record(record.row, record.path, record.place, {key: found[0]}).integer(key)
    return 0


def _gaps(record: Record, metrics: dict[str, Any]) -> list[float]:
    found = _metric(record, metrics, "inter_chunk_latency")
    if found is None or not isinstance(found[0], list):
        return []
    values, per_s = found
    if not all(type(value) in (int, float) for value in values):
        raise record.bad("inter_chunk_latency", values, "a list of numbers")
    return [value / per_s for value in values]


def _failure(record: Record, about: dict[str, Any]) -> str:
    error = record.values.get("error")
    if isinstance(error, dict):
        return str(error.get("type") or error.get("code") or "failed")
    if error or about.get("was_cancelled"):
        return "cancelled" if about.get("was_cancelled") else "failed"
    phase = about.get("benchmark_phase", "profiling")
    return "" if phase == "profiling" else f"{phase} phase"
