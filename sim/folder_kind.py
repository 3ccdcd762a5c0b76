"""Which command left a folder: known by the one file that each kind has and no kind before it."""

from __future__ import annotations

from enum import Enum
from pathlib import Path

from sim.errors import ResultError
from sim.staged_folder import SUMMARY


class FolderKind(Enum):
    """A kind of folder: the file that it is known by, and what it is in words.

    The folder of an advice is that of a sweep too, so it comes first.
    """

    RUN = (SUMMARY, "a run")
    ADVICE = ("advice.json", "an advice")
    SWEEP = ("sweep.yaml", "a sweep or a curve")
    COMPARISON = ("compare.json", "a comparison")
    CAPACITY = ("capacity.json", "a capacity answer")

    def __init__(self, file: str, words: str) -> None:
        self.file = file
        self.words = words


def kind_of(folder: Path) -> FolderKind | None:
    """The kind of a folder; None if it is of no kind.

    Raises:
        ResultError: there is no such folder.
    """
    if not folder.is_dir():
        raise ResultError(
            f"{folder}: {'is a file, no folder' if folder.exists() else 'no such folder'}"
        )
    return next((kind for kind in FolderKind if (folder / kind.file).is_file()), None)


def require_run(folder: Path) -> None:
    """Raise ResultError that says what a folder is, unless it is that of a run.

    One that lacks files of a run is left to its reader, which names what is missing.
    """
    kind = kind_of(folder)
    if kind is not None and kind is not FolderKind.RUN:
        raise ResultError(
            f"{folder}: is the folder of {kind.words}, not of a run (`headway run` makes those)"
        )
    if kind is None and not any(folder.glob("*.parquet")):
        raise ResultError(f"{folder}: is not the folder of a run: it has no {SUMMARY}")
