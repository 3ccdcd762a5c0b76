"""Turns a differing case into a small one, by asking vLLM again after every cut."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

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
    shrinker = _Shrinker(best, record, differs)
    size = 0
    while size != (size := len(json.dumps(shrinker.best))):
        shrinker.drop_requests()
        shrinker.drop_options()
        shrinker.cut_requests()
    return shrinker.best


class _Shrinker:
    """The smallest case so far, and ways to cut it further."""

    def __init__(self, best: Case, record: Record, differs: Differs) -> None:
        self.best = best
        self._record = record
        self._differs = differs

    def drop_requests(self) -> None:
        """Take requests out: halves, quarters and so on, down to single ones."""
        size = len(self.best["requests"]) // 2
        while size:
            start = 0
            while start < len(self.best["requests"]):
                kept = [*self.best["requests"]]
                del kept[start : start + size]
                if not kept or not self._try(requests=kept):
                    start += size
            size //= 2

    def drop_options(self) -> None:
        """Leave options at vLLM's defaults."""
        for key in _OPTIONAL:
            if key in self.best["config"]:
                self._try(config={k: v for k, v in self.best["config"].items() if k != key})

    def cut_requests(self) -> None:
        """Make every request as short and as plain as can be."""
        for index in range(len(self.best["requests"])):
            while self._cut_request(index):
                pass

    def _cut_request(self, index: int) -> bool:
        for smaller in _smaller_requests(self.best["requests"][index]):
            requests = [*self.best["requests"]]
            requests[index] = smaller
            if self._try(requests=requests):
                return True
        return False

    def _try(self, **changes: Any) -> bool:
        try:
            recorded = self._record({**self.best, **changes})
        except ConformanceError:
            return False
        if not self._differs(recorded):
            return False
        self.best = recorded
        return True


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
