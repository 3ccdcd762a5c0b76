"""Reading the JSON documents that commands leave in their folders."""

import json
from pathlib import Path
from typing import Any

from sim.errors import ResultError


def read_object(path: Path) -> dict[str, Any]:
    """Return the keys and values of a JSON file. Raises ResultError if it can't be read."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ResultError(f"{path}: can't be read as JSON ({error})") from error
    if not isinstance(found, dict):
        raise ResultError(f"{path}: expected keys and values, got {type(found).__name__}")
    return found
