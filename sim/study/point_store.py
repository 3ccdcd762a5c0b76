"""Results kept by name: a file each, there whole or not at all, whatever ends the process."""

import contextlib
import json
import os
from pathlib import Path
from typing import Any

from sim.errors import ResultError


class PointStore:
    """A folder with `NAME.json` files.

    A file is written under another name and then renamed, so a killed process leaves the finished
    ones whole and the others absent.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, name: str) -> dict[str, Any] | None:
        """What is kept under a name; None if there is nothing, or nothing readable."""
        try:
            kept = json.loads(self._path(name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return kept if isinstance(kept, dict) else None

    def write(self, name: str, value: dict[str, Any]) -> None:
        """Keep a value. Raises ResultError if the disk does not take it."""
        text = json.dumps(value, allow_nan=False) + "\n"
        write_atomically(self._path(name), text.encode())

    def clear_leavings(self) -> None:
        """Remove what killed processes left half-written. Call while no other process writes."""
        for path in self.folder.glob("*.tmp"):
            path.unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.json"


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file whole or not at all. Raises ResultError that says why it can't be."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(content)
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        reason = error.strerror or str(error)
        raise ResultError(f"{path}: can't be written ({reason})") from error
