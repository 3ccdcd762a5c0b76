"""What arrives: request specifications, traces, loaders, generators, transforms."""

from traces.errors import TraceError
from traces.generators.arrivals import ArrivalProcess, GammaArrivals, PoissonArrivals
from traces.generators.generate import generate
from traces.generators.lengths import (
    EmpiricalLengths,
    FixedLengths,
    LengthModel,
    Lognormal,
    LognormalLengths,
)
from traces.generators.prefixes import SystemPrompts
from traces.loader import load
from traces.measured.load import load_measured
from traces.measured.results import Measured, MeasuredRequest
from traces.reading import Reading, iter_chunks, open_trace
from traces.request import MAX_NUM_TOKENS, Prompt, RequestSpec, Segment
from traces.samples import sample
from traces.source import TraceSource
from traces.trace import Trace
from traces.transforms.arrivals import scale_rate, with_poisson_arrivals
from traces.transforms.selection import limit
from traces.transforms.sessions import join_outputs, parent_rows, session_numbers
from traces.writer import save

__all__ = [
    "MAX_NUM_TOKENS",
    "ArrivalProcess",
    "EmpiricalLengths",
    "FixedLengths",
    "GammaArrivals",
    "LengthModel",
    "Lognormal",
    "LognormalLengths",
    "Measured",
    "MeasuredRequest",
    "PoissonArrivals",
    "Prompt",
    "Reading",
    "RequestSpec",
    "Segment",
    "SystemPrompts",
    "Trace",
    "TraceError",
    "TraceSource",
    "generate",
    "iter_chunks",
    "join_outputs",
    "limit",
    "load",
    "load_measured",
    "open_trace",
    "parent_rows",
    "sample",
    "save",
    "scale_rate",
    "session_numbers",
    "with_poisson_arrivals",
]
