"""`--set engine.max_num_seqs=64` and the flags that stand for a key: values over a study file."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sim.config.paths import anchored
from sim.config.yaml_source import parse_yaml
from sim.errors import StudyError

# A study has one source of requests: giving another one takes the first one's place.
_TRACE_SOURCES = ("path", "sample", "generator", "conversations", "servegen")
_OF_A_FILE = ("format", "time_unit", "block_size")  # what the file's own source was said to be


@dataclass(frozen=True, slots=True)
class Override:
    """One key set from outside the file: its dotted path, its value, and how the user wrote it."""

    path: str
    value: Any
    label: str


def parse_override(text: str, folder: Path) -> Override:
    """Read `key.path=value`; the value is YAML, a relative path is one under `folder`.

    Raises:
        StudyError: there is no `=`, no key, or the value is not YAML.
    """
    path, equals, value = text.partition("=")
    path = path.strip()
    if not equals or not all(path.split(".")):
        raise StudyError(
            f"--set {text!r}: it must be key=value, for instance engine.max_num_seqs=64"
        )
    label = f"--set {text}"
    return Override(path, anchored(path, parse_yaml(value, label), folder), label)


def apply_overrides(study: Mapping[str, Any], overrides: Iterable[Override]) -> dict[str, Any]:
    """Return the study with the overrides laid over it, in order; `study` stays as it is.

    Raises:
        StudyError: a key inside something that is not a mapping.
    """
    result, given = dict(study), [(override.path.split("."), override) for override in overrides]
    # What is said of a file from outside too is said of the file given from outside.
    stale = {*_OF_A_FILE} - {keys[1] for keys, _ in given if keys[0] == "trace" and keys[1:]}
    for keys, override in given:
        result = _with_value(_without_other_source(result, keys, stale), keys, override)
    return result


def _with_value(mapping: Mapping[str, Any], keys: list[str], override: Override) -> dict[str, Any]:
    head, *rest = keys
    if not rest:
        return {**mapping, head: override.value}
    inner = {} if mapping.get(head) is None else mapping[head]
    if not isinstance(inner, Mapping):
        raise StudyError(
            f"{override.label}: {head!r} holds {inner!r}, which has no keys of its own"
        )
    return {**mapping, head: _with_value(inner, rest, override)}


def _without_other_source(
    study: dict[str, Any], keys: list[str], stale: set[str]
) -> dict[str, Any]:
    trace = study.get("trace")
    is_source = len(keys) > 1 and keys[0] == "trace" and keys[1] in _TRACE_SOURCES
    if not is_source or not isinstance(trace, Mapping):
        return study
    others = ({*_TRACE_SOURCES} - {keys[1]}) | stale
    return {**study, "trace": {key: trace[key] for key in trace if key not in others}}
