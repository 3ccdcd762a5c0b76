"""The study file: read, checked key by key, and resolved into what a run needs."""

from sim.config.overrides import Override, parse_override
from sim.config.resolve import load_study, resolve_study
from sim.config.resolved import (
    ClosedLoad,
    EngineConfig,
    Load,
    OpenLoad,
    ResolvedStudy,
    SessionLoad,
)

__all__ = [
    "ClosedLoad",
    "EngineConfig",
    "Load",
    "OpenLoad",
    "Override",
    "ResolvedStudy",
    "SessionLoad",
    "load_study",
    "parse_override",
    "resolve_study",
]
