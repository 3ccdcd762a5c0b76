"""Paths in a study: relative ones mean the folder of the file (or shell) that wrote them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

PATH_KEYS = ("trace.path", "cost_model.path")
NAME_OR_PATH_KEYS = ("model",)


def anchored(key: str, value: Any, folder: Path) -> Any:
    """Return the value of the dotted `key`, made absolute under `folder` if it is a path.

    A model is a path if it exists there or names a .json file; else it is left as a name.
    """
    if not isinstance(value, str) or not value:
        return value
    path = folder.absolute() / Path(value).expanduser()
    if key in PATH_KEYS:
        return str(path)
    if key in NAME_OR_PATH_KEYS and (path.exists() or path.suffix == ".json"):
        return str(path)
    return value


def anchor_study(study: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the study with every relative path made absolute under `folder`."""
    return {str(key): _anchor_entry(str(key), value, folder) for key, value in study.items()}


TRACE_PATH_KEYS = ("path", "lengths_from")


def _anchor_trace(section: Any, folder: Path) -> Any:
    """A trace section, and those that it merges, with every path in it absolute."""
    if isinstance(section, list):
        return [_anchor_trace(each, folder) for each in section]
    if not isinstance(section, Mapping):
        return section
    return {
        key: anchored("trace.path", value, folder)
        if key in TRACE_PATH_KEYS
        else _anchor_trace(value, folder)
        for key, value in section.items()
    }


def _anchor_entry(key: str, value: Any, folder: Path) -> Any:
    if key == "trace":
        return _anchor_trace(value, folder)
    if isinstance(value, Mapping):
        return {inner: anchored(f"{key}.{inner}", item, folder) for inner, item in value.items()}
    return anchored(key, value, folder)
