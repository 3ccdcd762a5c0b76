"""One self-contained HTML page about a folder: of a run, a sweep, an advice, ..."""

from sim.report.page import write_report

__all__ = ["write_report"]
