"""Invariants that every run must hold, checked on its rows alone."""

from sim.checks.outcome import CheckOutcome
from sim.checks.run_checks import check_dir, check_run

__all__ = ["CheckOutcome", "check_dir", "check_run"]
