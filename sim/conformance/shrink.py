"""Turns a differing case into a small one, by asking vLLM again after every cut."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

from sim.conformance.cases import Case, ConformanceError, Row
from sim.conformance.compare import first_difference
from sim.conformance.replay import replay_case

Record = Callable[[Case], Case]
Differs = Callable[[Case], bool]

# Options whose absence is vLLM's default.
_OPTIONAL = (
    "async_scheduling",
    "enable_chunked_prefill",
    "long_prefill_token_threshold",
    "max_loras",
    "max_num_scheduled_tokens",
    "num_speculative_tokens",
    "parallel_drafting",
    "policy",
    "scheduler_reserve_full_isl",
    "speculative_method",
    "watermark",
)
_OPTIONAL_OF_REQUEST = ("eos_at", "abort_step", "abort_mid", "lora", "proposals", "accepts")


def replay_differs(case: Case) -> bool:
    """Whether our scheduler decides a recorded case differently, or fails on it."""
    try:
        return first_difference(case["steps"], replay_case(case)) is not None
    except ConformanceError:
        return True


def shrink_case(case: Case, record: Record, differs: Differs = replay_differs) -> Case:
    """A case, recorded by `record`, that still differs and from which nothing can be cut.

    Returns the case itself, recorded anew, if it does not differ any more. What `record` refuses
    (`ConformanceError`) is no step of the way.
    """
    best = record(case)
    if not differs(best):
        return best
    smaller = True
    while smaller:
        smaller = False
        for cut in _cuts(best):
            recorded = _try_record(cut, record)
            if recorded is not None and differs(recorded):
                best, smaller = recorded, True
                break
    return best


def _try_record(case: Case, record: Record) -> Case | None:
    try:
        return record(case)
    except ConformanceError:
        return None


def _cuts(case: Case) -> Iterator[Case]:
    """Smaller workloads, the boldest first."""
    yield from _without_requests(case)
    for key in _OPTIONAL:
        if key in case["config"]:
            cut = _copy(case)
            del cut["config"][key]
            yield cut
    for index, request in enumerate(case["requests"]):
        for smaller in _smaller_requests(request):
            cut = _copy(case)
            cut["requests"][index] = smaller
            yield cut


def _without_requests(case: Case) -> Iterator[Case]:
    """Halves, quarters and so on of the requests taken out, down to single ones."""
    requests = case["requests"]
    size = len(requests) // 2
    while size:
        for start in range(0, len(requests), size):
            kept = [*requests[:start], *requests[start + size :]]
            if kept:
                yield {"name": case["name"], "config": case["config"], "requests": kept}
        size //= 2


def _smaller_requests(request: Row) -> Iterator[Row]:
    for key in _OPTIONAL_OF_REQUEST:
        if key in request:
            yield {k: value for k, value in request.items() if k != key}
    if request["arrival_step"]:
        yield {**request, "arrival_step": request["arrival_step"] // 2}
    if request["max_tokens"] > 1:
        yield {**request, "max_tokens": request["max_tokens"] // 2}
        yield {**request, "max_tokens": request["max_tokens"] - 1}
    *first, (segment, num_tokens) = request["prompt"]
    if first:
        yield {**request, "prompt": first}
    if num_tokens > 1:
        yield {**request, "prompt": [*first, [segment, num_tokens // 2]]}
        yield {**request, "prompt": [*first, [segment, num_tokens - 1]]}


def _copy(case: Case) -> Case:
    return copy.deepcopy({key: case[key] for key in ("name", "config", "requests")})
