"""guidellm's benchmarks JSON: one document, benchmarks with the requests of each.

Read as guidellm's schemas write it, older names (start_time) and newer (request_start_time); no
sample was at hand. Its time_per_output_token counts the first token's time in, so our TPOT is
taken from inter_token_latency_ms, which does not.
"""

from __future__ import annotations

from math import nan
from typing import Any

from traces.errors import TraceError, shown
from traces.json_document import list_in
from traces.measured.results import Measured, MeasuredRequest

_FAILED = ("errored", "incomplete")
NOTES = (
    "guidellm's time_per_output_token has the first token in it: TPOT is compared with its "
    "inter_token_latency, which has not",
)


def parse(path: str, document: dict[str, Any], benchmark: int | None = None) -> Measured:
    """The requests of one benchmark of a document, or of all.

    Raises:
        TraceError: no such benchmark, or a document of another shape.
    """
    benchmarks = list_in(path, document, "benchmarks", "a list of benchmarks")
    if benchmark is not None:
        if not 0 <= benchmark < len(benchmarks):
            raise TraceError(
                f"{path}: benchmark {benchmark} is wrong; there are {len(benchmarks)}, from 0"
            )
        benchmarks = [benchmarks[benchmark]]
    requests = [each for one in benchmarks for each in _requests(path, one)]
    return Measured(path, "guidellm", tuple(requests), NOTES)


def num_benchmarks(document: dict[str, Any]) -> int:
    """How many benchmarks a document holds."""
    benchmarks = document.get("benchmarks")
    return len(benchmarks) if isinstance(benchmarks, list) else 0


def _requests(path: str, benchmark: Any) -> list[MeasuredRequest]:
    groups = benchmark.get("requests") if isinstance(benchmark, dict) else None
    if not isinstance(groups, dict):
        right = "requests with successful, errored and incomplete"
        raise TraceError(f"{path}: {shown(groups)} is wrong; a benchmark must have {right}")
    rows = []
    for group in ("successful", *_FAILED):
        for index, values in enumerate(groups.get(group) or [], start=1):
            where = f"{path}, {group} request {index}"
            if not isinstance(values, dict):
                raise TraceError(f"{where}: {shown(values)} is wrong; it must be an object")
            rows.append(_request(where, values, "" if group == "successful" else group))
    return sorted(rows, key=lambda row: row.sent_s)


def _request(where: str, values: dict[str, Any], failure: str) -> MeasuredRequest:
    start_s = _number(where, values, "request_start_time", "start_time")
    end_s = _number(where, values, "request_end_time", "end_time")
    latency_s = _number(where, values, "request_latency")
    return MeasuredRequest(
        start_s,
        _count(where, values, "prompt_tokens"),
        _count(where, values, "output_tokens"),
        ttft_s=_number(where, values, "time_to_first_token_ms") / 1e3,
        tpot_s=_number(where, values, "inter_token_latency_ms") / 1e3,
        e2e_s=end_s - start_s if latency_s != latency_s else latency_s,  # noqa: PLR0124 (NaN)
        failure=failure,
    )


def _number(where: str, values: dict[str, Any], *keys: str) -> float:
    for key in keys:
        value = values.get(key)
        if value is None:
            continue
        if type(value) not in (int, float) or value < 0:
            raise TraceError(f"{where}, {key}: {shown(value)} is wrong; it must be a number >= 0")
        return float(value)
    return nan


def _count(where: str, values: dict[str, Any], key: str) -> int:
    value = values.get(key)
    if value is None:
        return 0
    if type(value) is not int or value < 0:
        raise TraceError(f"{where}, {key}: {shown(value)} is wrong; it must be a whole number")
    return value
