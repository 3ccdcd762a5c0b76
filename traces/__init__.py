"""What arrives: request specifications, traces, loaders, generators, transforms."""

from traces.errors import RowError, TraceError
from traces.generators.arrivals import ArrivalProcess, GammaArrivals, PoissonArrivals
from traces.generators.conversations import Conversations, Pause
from traces.generators.generate import generate, with_mix
from traces.generators.lengths import (
    EmpiricalLengths,
    FixedLengths,
    LengthModel,
    Lognormal,
    LognormalLengths,
)
from traces.generators.prefixes import SystemPrompts
from traces.generators.servegen import from_servegen
from traces.generators.tree import PrefixTree
from traces.generators.varying import DiurnalArrivals, OnOffArrivals, Stage, StagedArrivals
from traces.generators.weibull import WeibullArrivals
from traces.info import TraceInfo, trace_info
from traces.labels import Labels
from traces.loader import load
from traces.measured.load import load_measured
from traces.measured.results import Measured, MeasuredRequest
from traces.prompt_table import PromptTable
from traces.reading import Reading, iter_chunks, open_trace
from traces.request import MAX_NUM_TOKENS, Prompt, RequestSpec, Segment
from traces.samples import sample
from traces.source import TraceSource
from traces.trace import Trace
from traces.transforms.arrivals import from_zero, jitter, scale_rate, with_poisson_arrivals
from traces.transforms.labels import cap_lengths, map_priorities, with_priorities, with_tenants
from traces.transforms.merge import merge
from traces.transforms.selection import limit, sample_sessions, thin, window
from traces.transforms.sessions import join_outputs, parent_rows, session_numbers
from traces.writer import check_target, save

__all__ = [
    "MAX_NUM_TOKENS",
    "ArrivalProcess",
    "Conversations",
    "DiurnalArrivals",
    "EmpiricalLengths",
    "FixedLengths",
    "GammaArrivals",
    "Labels",
    "LengthModel",
    "Lognormal",
    "LognormalLengths",
    "Measured",
    "MeasuredRequest",
    "OnOffArrivals",
    "Pause",
    "PoissonArrivals",
    "PrefixTree",
    "Prompt",
    "PromptTable",
    "Reading",
    "RequestSpec",
    "RowError",
    "Segment",
    "Stage",
    "StagedArrivals",
    "SystemPrompts",
    "Trace",
    "TraceError",
    "TraceInfo",
    "TraceSource",
    "WeibullArrivals",
    "cap_lengths",
    "check_target",
    "from_servegen",
    "from_zero",
    "generate",
    "iter_chunks",
    "jitter",
    "join_outputs",
    "limit",
    "load",
    "load_measured",
    "map_priorities",
    "merge",
    "open_trace",
    "parent_rows",
    "sample",
    "sample_sessions",
    "save",
    "scale_rate",
    "session_numbers",
    "thin",
    "trace_info",
    "window",
    "with_mix",
    "with_poisson_arrivals",
    "with_priorities",
    "with_tenants",
]
