"""Which kind of folder it is, and its page."""

from pathlib import Path

from sim import result as run_folder
from sim.errors import ResultError
from sim.report.capacity_page import capacity_page
from sim.report.comparison_page import comparison_page
from sim.report.run_page import run_page
from sim.report.sweep_page import sweep_page
from sim.study import sweep_folder
from sim.study.capacity_folder import CAPACITY
from sim.study.point_store import write_atomically


def write_report(folder: Path, out: Path | None = None) -> Path:
    """Write the page about a folder that a command has left; returns its path.

    Raises ResultError if there is no page about such a folder, or can't be read or written.
    """
    if not folder.is_dir():
        raise ResultError(f"{folder}: no such folder")
    if (folder / run_folder.SUMMARY).is_file():
        text = run_page(folder)
    elif (folder / sweep_folder.PLAN).is_file():
        text = sweep_page(folder)
    elif (folder / "compare.json").is_file():
        text = comparison_page(folder)
    elif (folder / CAPACITY).is_file():
        text = capacity_page(folder)
    else:
        raise ResultError(
            f"{folder}: is no folder of a run (summary.json), a sweep (sweep.yaml), a comparison "
            "(compare.json) or a capacity answer (capacity.json)"
        )
    target = out or folder / "report.html"
    write_atomically(target, text.encode())
    return target
