"""The proof that our scheduler decides as vLLM's does: replay, compare, record, shrink.

A case is a workload and, step by step, what vLLM's own scheduler decided for it. `replay_file`
replays recorded cases on ours; `record_cases` has an installed vLLM decide new ones.
"""

from sim.conformance.cases import (
    Case,
    ConformanceError,
    Row,
    family_of,
    make_configs,
    read_cases,
    write_cases,
)
from sim.conformance.compare import first_difference
from sim.conformance.replay import replay_case
from sim.conformance.report import CaseOutcome, ConformanceReport, replay_file

__all__ = [
    "Case",
    "CaseOutcome",
    "ConformanceError",
    "ConformanceReport",
    "Row",
    "family_of",
    "first_difference",
    "make_configs",
    "read_cases",
    "replay_case",
    "replay_file",
    "write_cases",
]
