"""Transforms that keep some of the requests."""

from __future__ import annotations

import numpy as np

from traces.arrays import IntArray
from traces.errors import TraceError
from traces.trace import Trace
from traces.transforms.sessions import session_numbers


def limit(trace: Trace, num_requests: int) -> Trace:
    """The first `num_requests` requests to arrive; all of them if there are fewer.

    Raises:
        TraceError: `num_requests` below 1.
    """
    if num_requests < 1:
        raise TraceError(f"limit: {num_requests!r} is wrong; it must be at least 1")
    kept = np.arange(min(num_requests, len(trace)))
    return trace.take(kept, f"limit(num_requests={num_requests})")


def window(trace: Trace, start_s: float, end_s: float) -> Trace:
    """The requests that arrive from `start_s` to before `end_s`, at their own times.

    Raises:
        TraceError: an empty or negative stretch, or one without requests.
    """
    if not 0 <= start_s < end_s:
        raise TraceError(f"window: {start_s!r} to {end_s!r} is wrong; the first must be smaller")
    kept = np.flatnonzero((trace.arrival_s >= start_s) & (trace.arrival_s < end_s))
    return _some(trace, kept, f"window(start_s={start_s!r}, end_s={end_s!r})")


def thin(trace: Trace, share: float, rng: np.random.Generator) -> Trace:
    """Each request kept with probability `share`, whatever becomes of the others.

    So the rate falls by that factor while the time of day and the pattern of bursts stay, unlike
    with `scale_rate`. A request whose parent is left out begins its session.

    Raises:
        TraceError: a share outside 0 to 1, or no request left.
    """
    _check_share("thin", share)
    kept = np.flatnonzero(rng.random(len(trace)) < share)
    return _some(trace, kept, f"thin(share={share!r})")


def sample_sessions(trace: Trace, share: float, rng: np.random.Generator) -> Trace:
    """Each session kept, whole, with probability `share`; without sessions, each request.

    Raises:
        TraceError: a share outside 0 to 1, or no session left.
    """
    _check_share("sample_sessions", share)
    numbers = session_numbers(trace)
    kept = rng.random(int(numbers.max()) + 1) < share
    return _some(trace, np.flatnonzero(kept[numbers]), f"sample_sessions(share={share!r})")


def _check_share(name: str, share: float) -> None:
    if not 0 < share <= 1:
        raise TraceError(f"{name}: {share!r} is wrong; it must be above 0 and at most 1")


def _some(trace: Trace, kept: IntArray, what: str) -> Trace:
    if not kept.size:
        raise TraceError(f"{what} leaves none of the {len(trace)} requests")
    return trace.take(kept, what)
