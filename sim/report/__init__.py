"""One self-contained HTML page about a folder: a run, a sweep, an advice, a comparison, ..."""

from sim.report.page import write_report

__all__ = ["write_report"]
