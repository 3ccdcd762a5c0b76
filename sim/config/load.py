"""A study file to plain values, and plain values with overrides to a validated `StudyFile`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sim.config.messages import first_error
from sim.config.overrides import Override, apply_overrides
from sim.config.paths import anchor_study
from sim.config.schema import StudyFile
from sim.config.yaml_source import parse_yaml
from sim.errors import StudyError


def read_study(path: Path) -> dict[str, Any]:
    """Read a study file as plain values, relative paths made absolute under its folder.

    Raises:
        StudyError: it can't be read, or is not a mapping in YAML.
    """
    values = parse_yaml(_read(path), str(path))
    if values is None:
        raise StudyError(f"{path}: the study file is empty")
    if not isinstance(values, Mapping):
        raise StudyError(f"{path}: a study file is a mapping of keys, this one is {values!r:.60}")
    return anchor_study(values, path.parent)


def parse_study(
    values: Mapping[str, Any], source: str, overrides: Sequence[Override] = ()
) -> StudyFile:
    """Validate the values of a study; `source` names them in messages.

    Raises:
        StudyError: a key or value is not right; one sentence with its path.
    """
    try:
        return StudyFile.model_validate(apply_overrides(values, overrides))
    except ValidationError as error:
        path, sentence = first_error(error, StudyFile)
        raise StudyError(f"{_origin(path, source, overrides)}: {path}: {sentence}") from error


def _origin(path: str, source: str, overrides: Sequence[Override]) -> str:
    """Who gave the value at `path`: the last override on it, or else the file."""
    for override in reversed(overrides):
        if path == override.path or path.startswith(override.path + "."):
            return override.label
    return source


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise StudyError(f"{path}: there is no such study file") from error
    except UnicodeDecodeError as error:
        raise StudyError(f"{path}: not a text file in UTF-8 (byte {error.start})") from error
    except OSError as error:
        raise StudyError(f"{path}: can't be read: {error.strerror}") from error
