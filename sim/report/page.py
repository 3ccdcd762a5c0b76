"""The page of each kind of folder."""

from pathlib import Path

from sim.errors import ResultError
from sim.folder_kind import FolderKind, kind_of
from sim.report.advice_page import advice_page
from sim.report.capacity_page import capacity_page
from sim.report.comparison_page import comparison_page
from sim.report.run_page import run_page
from sim.report.sweep_page import sweep_page
from sim.study.point_store import write_atomically

_PAGES = {
    FolderKind.RUN: run_page,
    FolderKind.ADVICE: advice_page,
    FolderKind.SWEEP: sweep_page,
    FolderKind.COMPARISON: comparison_page,
    FolderKind.CAPACITY: capacity_page,
}


def write_report(folder: Path, out: Path | None = None) -> Path:
    """Write the page about a folder that a command has left; returns its path.

    Raises ResultError if there is no page about such a folder, or can't be read or written.
    """
    kind = kind_of(folder)
    if kind is None:
        kinds = ", ".join(f"{kind.words} ({kind.file})" for kind in _PAGES)
        raise ResultError(f"{folder}: is no folder of any kind that there is a page of: {kinds}")
    target = out or folder / "report.html"
    write_atomically(target, _PAGES[kind](folder).encode())
    return target
