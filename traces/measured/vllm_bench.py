"""`vllm bench serve --save-result --save-detailed`: one JSON document.

Lists input_lens, output_lens, ttfts (s), itls (s, a list a request), errors, and in newer versions
start_times (s of a process clock). Read as the tool's source writes them; no sample was at hand.
"""

from __future__ import annotations

from math import fsum, nan
from typing import Any

from traces.errors import TraceError, shown
from traces.measured.results import Measured, MeasuredRequest

_LISTS = ("input_lens", "output_lens", "ttfts", "itls", "errors")
CHUNK_NOTE = (
    "a gap is the time between two pieces of the stream, which may hold several tokens: compare "
    "pooled ITL with care"
)


def parse(path: str, document: dict[str, Any]) -> Measured:
    """The requests of a result.

    Raises:
        TraceError: not a detailed result, or lists that do not fit each other.
    """
    lists = {key: _list(path, document, key) for key in _LISTS}
    num_rows = len(lists["input_lens"])
    starts = document.get("start_times") or [nan] * num_rows
    for key, values in (*lists.items(), ("start_times", starts)):
        if not isinstance(values, list) or len(values) != num_rows:
            raise TraceError(
                f"{path}: {key} has {len(values)} values, but input_lens has {num_rows}; each "
                "request must be in all lists"
            )
    columns = zip(*(lists[key] for key in _LISTS), starts, strict=True)
    requests = tuple(_request(path, row, values) for row, values in enumerate(columns))
    return Measured(path, "vllm bench serve", requests, (CHUNK_NOTE,))


def _list(path: str, document: dict[str, Any], key: str) -> list[Any]:
    found = document.get(key)
    if key == "errors" and found is None:
        return [""] * len(document.get("input_lens") or [])
    if isinstance(found, list):
        return found
    raise TraceError(
        f"{path}: key {key!r} is missing; the result must be saved with --save-result "
        "--save-detailed"
    )


def _request(path: str, row: int, values: tuple[Any, ...]) -> MeasuredRequest:
    prompt, output, ttft, gaps, error, start = values
    _check(path, row, "input_lens", prompt, type(prompt) is int and prompt >= 0)
    _check(path, row, "output_lens", output, type(output) is int and output >= 0)
    _check(path, row, "start_times", start, _is_number(start))
    if error:
        return MeasuredRequest(float(start), prompt, output, failure=_first_line(error))
    _check(path, row, "ttfts", ttft, _is_number(ttft) and ttft >= 0)
    _check(path, row, "itls", gaps, isinstance(gaps, list) and all(map(_is_number, gaps)))
    decode_s = fsum(gaps)
    return MeasuredRequest(
        float(start),
        prompt,
        output,
        ttft_s=float(ttft),
        tpot_s=decode_s / (output - 1) if output > 1 else nan,
        e2e_s=ttft + decode_s,
        gaps_s=[float(gap) for gap in gaps],
    )


def _is_number(value: object) -> bool:
    return type(value) in (int, float)


def _check(path: str, row: int, key: str, value: object, good: bool) -> None:
    if not good:
        raise TraceError(f"{path}, request {row + 1}, {key}: {shown(value)} is wrong")


def _first_line(error: object) -> str:
    lines = str(error).strip().splitlines()
    return lines[-1][:80] if lines else "failed"
