"""What arrives: request specifications, traces, loaders, generators, transforms."""

from traces.errors import TraceError
from traces.loader import load
from traces.request import MAX_NUM_TOKENS, Prompt, RequestSpec, Segment
from traces.source import TraceSource
from traces.trace import Trace

__all__ = [
    "MAX_NUM_TOKENS",
    "Prompt",
    "RequestSpec",
    "Segment",
    "Trace",
    "TraceError",
    "TraceSource",
    "load",
]
