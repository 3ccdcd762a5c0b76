"""One self-contained HTML page about a folder: a run, a sweep, a comparison, a capacity answer."""

from sim.report.page import write_report

__all__ = ["write_report"]
