"""What is in a trace file, found in one pass that holds no more than a chunk of it.

Exact, not sampled: lengths are counted by value, rates by minute. The gaps between arrivals need
them in order; where a file is not sorted, its times alone are read again and sorted.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from traces.errors import TraceError
from traces.formats.base import Chunk
from traces.histogram import Histogram
from traces.prefix_pool import PrefixPools
from traces.reading import Reading
from traces.request import NO_PARENT
from traces.time_units import unit_suspicion

USUAL_BLOCK_SIZE = 16
PERCENTS = (50, 90, 95, 99)
MINUTE_S = 60.0


@dataclass(slots=True)
class Gaps:
    """Moments of the gaps between arrivals in order."""

    count: int = 0
    mean_s: float = 0.0
    squares: float = 0.0

    def add(self, gaps_s: npt.NDArray[Any]) -> None:
        """Merge some gaps in (Chan et al. 1979, which does not cancel)."""
        if not len(gaps_s):
            return
        mean = float(gaps_s.mean())
        squares = float(((gaps_s - mean) ** 2).sum())
        total = self.count + len(gaps_s)
        apart = mean - self.mean_s
        self.squares += squares + apart**2 * self.count * len(gaps_s) / total
        self.mean_s += apart * len(gaps_s) / total
        self.count = total

    @property
    def cv(self) -> float | None:
        """Standard deviation over mean; 1 for a Poisson process. None without two gaps."""
        if self.count < 2 or self.mean_s <= 0:
            return None
        return math.sqrt(self.squares / self.count) / self.mean_s


@dataclass(slots=True)
class TraceInfo:
    """What is in a trace. `dropped` and `num_rows` are as `load` would have them.

    Attributes:
        reading: format, time unit and block size, and what of them was guessed.
        minutes: how many requests came in each minute from the first arrival.
        prompt_tokens: of the requests.
        output_tokens: of the requests.
        gaps: between arrivals.
        pools: ideal prefix hits; None where no prompt has segments.
    """

    reading: Reading
    num_rows: int = 0
    num_requests: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    num_early: int = 0
    first_tick: Any = None
    last_tick: Any = None
    minutes: Histogram = field(default_factory=Histogram)
    prompt_tokens: Histogram = field(default_factory=Histogram)
    output_tokens: Histogram = field(default_factory=Histogram)
    gaps: Gaps = field(default_factory=Gaps)
    pools: PrefixPools | None = None
    sessions: set[str] = field(default_factory=set)
    tenants: set[str] = field(default_factory=set)
    num_follow_ups: int = 0
    num_thinking: int = 0

    @property
    def span_s(self) -> float:
        """Seconds from the first arrival to the last."""
        return float(self.last_tick - self.first_tick) / self.reading.plan.ticks_per_s

    @property
    def rate_per_s(self) -> float | None:
        """Mean arrivals a second; None if all come at once."""
        return (self.num_requests - 1) / self.span_s if self.span_s > 0 else None

    @property
    def peak_minute_per_s(self) -> float | None:
        """Arrivals a second in the busiest minute; None if the trace is shorter than one."""
        return int(self.minutes.counts.max()) / MINUTE_S if self.span_s >= MINUTE_S else None

    def warnings(self) -> list[str]:
        """What a user should know, one sentence each."""
        plan, found = self.reading.plan, list(self.reading.plan.notes)
        if self.num_early:
            found.append(f"{self.num_early} rows have an earlier time than the row before")
        if self.reading.bad_rows.first:
            found.append(f"the first bad row: {self.reading.bad_rows.first[0]}")
        if plan.time_unit is not None:
            span = float(self.last_tick - self.first_tick)
            suspicion = unit_suspicion(self.num_requests, span, plan.time_unit)
            found += [suspicion] if suspicion else []
        return found

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON values."""
        return {
            "file": self.reading.name,
            "sha256": self.reading.sha256,
            "format": self.reading.format.name,
            "time_unit": self.reading.plan.time_unit,
            "block_size": self.reading.plan.block_size,
            "rows": self.num_rows,
            "requests": self.num_requests,
            "dropped": dict(self.dropped),
            "span_s": self.span_s,
            "rate_per_s": self.rate_per_s,
            "peak_minute_per_s": self.peak_minute_per_s,
            "gap_cv": self.gaps.cv,
            "prompt_tokens": _lengths(self.prompt_tokens),
            "output_tokens": _lengths(self.output_tokens),
            "prefix": None if self.pools is None else _prefix(self.pools),
            "sessions": len(self.sessions),
            "follow_up_requests": self.num_follow_ups,
            "recorded_think_times": self.num_thinking,
            "tenants": len(self.tenants),
            "warnings": self.warnings(),
        }


def trace_info(
    reading: Reading, reopen: Callable[[], Reading], on_rows: Callable[[int], None] | None = None
) -> TraceInfo:
    """Read a trace from start to end and say what is in it.

    Args:
        reading: opened, not read yet.
        reopen: opens it again, for the second pass over unsorted times.
        on_rows: called now and then with the number of rows read.

    Raises:
        TraceError: a row is wrong, or there is no request.
    """
    gatherer = _Gatherer(TraceInfo(reading))
    for chunk in reading.chunks():
        gatherer.add(chunk)
        if on_rows is not None:
            on_rows(gatherer.info.num_rows)
    return gatherer.finished(reopen)


class _Gatherer:
    def __init__(self, info: TraceInfo) -> None:
        self.info = info
        self._last_row_tick: Any = None
        self._origin: Any = None

    def add(self, chunk: Chunk) -> None:
        info = self.info
        info.num_rows += len(chunk)
        good = (chunk.num_prompt_tokens > 0) & (chunk.num_output_tokens > 0)
        info.dropped["zero prompt tokens"] += int((chunk.num_prompt_tokens == 0).sum())
        no_output = (chunk.num_output_tokens == 0) & (chunk.num_prompt_tokens > 0)
        info.dropped["zero output tokens"] += int(no_output.sum())
        if not good.all():
            chunk = chunk.taken(np.flatnonzero(good))
        if len(chunk):
            info.num_requests += len(chunk)
            info.prompt_tokens.add(chunk.num_prompt_tokens)
            info.output_tokens.add(chunk.num_output_tokens)
            self._add_times(chunk)
            self._add_sessions(chunk)
            self._add_prompts(chunk)

    def _add_times(self, chunk: Chunk) -> None:
        info, times = self.info, chunk.times
        self._origin = times[0] if self._origin is None else self._origin
        before = times[:1] if self._last_row_tick is None else [self._last_row_tick]
        steps = np.diff(np.concatenate([np.asarray(before, dtype=times.dtype), times]))
        info.num_early += int((steps < 0).sum())
        is_first = self._last_row_tick is None
        info.gaps.add((steps[1:] if is_first else steps) / info.reading.plan.ticks_per_s)
        self._last_row_tick = times[-1]
        low, high = times.min(), times.max()
        info.first_tick = low if info.first_tick is None else min(info.first_tick, low)
        info.last_tick = high if info.last_tick is None else max(info.last_tick, high)
        seconds = (times - self._origin) / info.reading.plan.ticks_per_s
        info.minutes.add(np.floor(seconds / MINUTE_S).astype(np.int64))

    def _add_sessions(self, chunk: Chunk) -> None:
        if chunk.session_id is not None:
            self.info.sessions.update(chunk.session_id.names)
        if chunk.tenant is not None:
            self.info.tenants.update(chunk.tenant.names)
        if chunk.parent_id is not None:
            self.info.num_follow_ups += int((chunk.parent_id != NO_PARENT).sum())
        if chunk.think_time_s is not None:
            self.info.num_thinking += int((~np.isnan(chunk.think_time_s)).sum())

    def _add_prompts(self, chunk: Chunk) -> None:
        if chunk.prompts is None:
            return
        if self.info.pools is None:
            size = self.info.reading.plan.block_size or USUAL_BLOCK_SIZE
            self.info.pools = PrefixPools(size)
        ids = chunk.rows if chunk.request_id is None else chunk.request_id
        rows = zip(
            ids.tolist(),
            chunk.prompts,
            chunk.num_prompt_tokens.tolist(),
            chunk.num_output_tokens.tolist(),
            [0] * len(chunk) if chunk.lora_id is None else chunk.lora_id.tolist(),
            strict=True,
        )
        for row in rows:
            self.info.pools.serve(*row)

    def finished(self, reopen: Callable[[], Reading]) -> TraceInfo:
        info = self.info
        info.num_rows += sum(info.reading.bad_rows.num_by_reason.values())
        info.dropped = +(info.dropped + info.reading.bad_rows.num_by_reason)
        if not info.num_requests:
            raise TraceError(
                f"{info.reading.name}: no usable request among {info.num_rows} rows "
                f"({dict(info.dropped)})"
            )
        if info.num_early:
            info.gaps = _sorted_gaps(reopen())
        return info


def _sorted_gaps(reading: Reading) -> Gaps:
    """Gaps of a file that is not sorted: eight bytes a row, whatever else a row holds."""
    times = np.concatenate(
        [
            chunk.times[(chunk.num_prompt_tokens > 0) & (chunk.num_output_tokens > 0)]
            for chunk in reading.chunks()
        ]
    )
    times.sort()
    gaps = Gaps()
    gaps.add(np.diff(times) / reading.plan.ticks_per_s)
    return gaps


def _lengths(histogram: Histogram) -> dict[str, float]:
    percentiles = zip(PERCENTS, histogram.percentiles(PERCENTS), strict=True)
    return {
        "mean": histogram.mean,
        **{f"p{percent}": value for percent, value in percentiles},
        "max": int(histogram.values[-1]),
        "total": histogram.sum,
    }


def _prefix(pools: PrefixPools) -> dict[str, Any]:
    counts = (pools.unbounded, *pools.bounded)
    return {
        "block_size": pools.block_size,
        "pools": [
            {
                "pool_tokens": count.pool_tokens,
                "hit_share_of_prompt_tokens": count.hit_tokens / pools.num_prompt_tokens,
                "hit_share_of_blocks": count.hit_blocks / pools.num_blocks,
            }
            for count in counts
        ],
    }
