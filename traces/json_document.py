"""Files that are one JSON document, and typed values out of it."""

from __future__ import annotations

import json
from typing import Any

from traces.errors import TraceError, bad_place, shown
from traces.files import Head, InputFile


def looks_like(head: Head, *keys: str) -> float:
    """Share of the keys that occur in the beginning of a file which is a JSON object."""
    if not head.first_line.startswith("{"):
        return 0.0
    text = head.data.decode("utf-8", errors="replace")
    return sum(f'"{key}"' in text for key in keys) / len(keys)


def document(file: InputFile) -> dict[str, Any]:
    """The document of a file, which must be an object.

    Raises:
        TraceError: it is no JSON, or no object.
    """
    text = file.document()
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        what = f"this is no JSON ({error.msg} at column {error.colno}); it may be cut off"
        raise bad_place(file.path, f"line {error.lineno}", what) from None
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{file.path}: this is no JSON document: {error}") from None
    if not isinstance(value, dict):
        raise TraceError(f"{file.path}: {shown(value)} is wrong; it must be a JSON object")
    return value


def list_in(path: str, value: dict[str, Any], key: str, right: str) -> list[Any]:
    """A list under a key of a document; raises TraceError if it is none."""
    found = value.get(key)
    if isinstance(found, list):
        return found
    state = "is missing" if key not in value else f"{shown(found)} is wrong"
    raise TraceError(f"{path}: key {key!r} {state}; it must be {right}")
