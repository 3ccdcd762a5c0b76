"""Transforms that keep some of the requests."""

from __future__ import annotations

import numpy as np

from traces.errors import TraceError
from traces.trace import Trace


def limit(trace: Trace, num_requests: int) -> Trace:
    """The first `num_requests` requests to arrive; all of them if there are fewer.

    Raises:
        TraceError: `num_requests` below 1.
    """
    if num_requests < 1:
        raise TraceError(f"limit: {num_requests!r} is wrong; it must be at least 1")
    kept = np.arange(min(num_requests, len(trace)))
    return trace.take(kept, f"limit(num_requests={num_requests})")
