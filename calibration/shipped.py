"""Reads the data files that ship with this package."""

import json
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def read_table(file_name: str, key: str) -> dict[str, dict[str, Any]]:
    """Return the entries of a shipped JSON table by name; callers must not change them."""
    text = files("calibration").joinpath("data", file_name).read_text(encoding="utf-8")
    table: dict[str, dict[str, Any]] = json.loads(text)[key]
    return table


def find_entry(table: dict[str, dict[str, Any]], name: str) -> str | None:
    """Return the name in `table` that `name` or its alias stands for, None if there is none."""
    for entry_name, entry in table.items():
        if name == entry_name or name in entry["aliases"]:
            return entry_name
    return None
