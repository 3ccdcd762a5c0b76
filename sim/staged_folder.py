"""The place of a run folder: who may take it, and how a folder takes it whole or not at all."""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from sim.errors import ResultError

CONFIG, SUMMARY = "config.yaml", "summary.json"
_OURS = frozenset({CONFIG, SUMMARY})


def check_target(folder: Path | str, overwrite: bool = False) -> None:
    """Raise ResultError if `save` would refuse this folder; so a long run can fail before it."""
    target = Path(folder)
    if target.exists() and not target.is_dir():
        raise ResultError(f"{target}: is a file; name a folder for the run")
    _check_may_replace(target, overwrite)
    if Path.cwd().is_relative_to(target.resolve()):
        raise ResultError(f"{target}: the folder you are in can't be replaced; name another one")
    writers = being_written(target)
    if writers and not overwrite:
        raise ResultError(
            f"{target}: process {writers[0]} is writing it now; choose another name, or give"
            " --overwrite to replace what it leaves"
        )
    parent = _existing_ancestor(target)
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise ResultError(f"{target}: can't be written, {parent} is not a writable folder")


@contextlib.contextmanager
def staged_folder(target: Path, overwrite: bool = False) -> Iterator[Path]:
    """A new folder beside `target` to write into; it takes target's place when the block ends.

    A run folder that came there meanwhile is replaced only if `overwrite`. If the block raises, the
    new folder is removed and target stays as it was. OSError within becomes ResultError.
    """
    check_target(target, overwrite)
    place = target.resolve()  # a link stays one
    stage = place.parent / f".{place.name}.{os.getpid()}.tmp"
    new_parents = [parent for parent in place.parents if not parent.exists()]
    try:
        _remove_left_over(place)
        stage.mkdir(parents=True)
        yield stage
        _check_may_replace(target, overwrite)
        _take_place(stage, place)
    except OSError as error:
        # Arrow's own words for a full disk are many; the system's are these.
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise ResultError(f"{target}: the run folder can't be written ({reason})") from error
    finally:
        _remove_whatever_comes(stage)
        with contextlib.suppress(OSError):  # one that holds something stays
            for parent in new_parents:
                parent.rmdir()


def _remove_whatever_comes(stage: Path) -> None:
    """Remove a folder, also where a signal falls into it: it comes through afterwards."""
    try:
        shutil.rmtree(stage, ignore_errors=True)
    except BaseException:
        _remove_whatever_comes(stage)
        raise


def being_written(target: Path) -> list[int]:
    """Other processes that write a folder for this place now."""
    return [n for n in _stages(target.resolve()) if n != os.getpid() and _is_alive(n)]


def _check_may_replace(target: Path, overwrite: bool) -> None:
    if not target.is_dir() or not any(target.iterdir()):
        return
    if not overwrite:
        raise ResultError(f"{target}: exists already; choose another name or give --overwrite")
    if not {entry.name for entry in target.iterdir()} >= _OURS:
        raise ResultError(f"{target}: is not a run folder, so it is not overwritten")


def _remove_left_over(place: Path) -> None:
    """Folders of runs that were killed while they wrote: their process is gone.

    One that was to be replaced goes only if it was: a kill may have come just before.
    """
    left_over = list(_stages(place).items())
    if place.exists():
        left_over += _stages(place, "old").items()
    for process, folder in left_over:
        if not _is_alive(process):
            shutil.rmtree(folder, ignore_errors=True)


def _stages(place: Path, suffix: str = "tmp") -> dict[int, Path]:
    """Folders that are to take this place ("old": that had it), by the process that writes each."""
    found = place.parent.glob(f".{glob.escape(place.name)}.*.{suffix}")
    named = ((folder.name.split(".")[-2], folder) for folder in found)
    return {int(process): folder for process, folder in named if process.isdecimal()}


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # somebody else's, or no such number
        return True
    return True


def _existing_ancestor(path: Path) -> Path:
    return next((p for p in path.absolute().parents if p.exists()), Path("/"))


def _take_place(stage: Path, target: Path) -> None:
    old = stage.with_suffix(".old")
    if target.exists():
        target.rename(old)
    try:
        stage.rename(target)
    except OSError:
        if old.exists():
            old.rename(target)
        raise
    shutil.rmtree(old, ignore_errors=True)
