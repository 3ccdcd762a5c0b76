"""YAML text to plain values, refusing what YAML 1.1 would silently bend.

Differences from `yaml.safe_load`: a key given twice is an error, `1e-3` is a number, and only
`true` and `false` are booleans (as YAML 1.2 has it).
"""

import re
from collections.abc import Hashable
from typing import Any

import yaml

from sim.errors import StudyError

_FLOAT = re.compile(
    r"""^(?:[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?
    |[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$""",
    re.VERBOSE,
)
_INT = re.compile(r"^[-+]?(?:0|[1-9][0-9]*)$")
_BOOL = re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$")
_NULL = re.compile(r"^(?:~|null|Null|NULL|)$")


class _StudyLoader(yaml.SafeLoader):
    """SafeLoader with the scalar rules of YAML 1.2's core schema, and no repeated keys."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable) and key in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"the key {key!r} is given twice", problem_mark=key_node.start_mark
                )
            seen.add(key if isinstance(key, Hashable) else repr(key))
        return super().construct_mapping(node, deep=deep)


_SCALARS = (
    ("bool", _BOOL, list("tTfF")),
    ("int", _INT, list("-+0123456789")),
    ("float", _FLOAT, list("-+0123456789.")),
    ("null", _NULL, ["~", "n", "N", ""]),
)
_StudyLoader.yaml_implicit_resolvers = {}  # drop YAML 1.1's, which the class inherits
for _tag, _pattern, _first_characters in _SCALARS:
    _StudyLoader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", _pattern, _first_characters)


def parse_yaml(text: str, source: str) -> Any:
    """Parse one YAML document.

    Raises:
        StudyError: it is not valid YAML; the message names `source` and the line.
    """
    try:
        return yaml.load(text, Loader=_StudyLoader)  # a SafeLoader: plain values only
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f", {_place(mark)}" if mark else ""
        raise StudyError(
            f"{source}{where}: not valid YAML: {error.problem}{_begun(error)}"
        ) from error
    except yaml.YAMLError as error:  # a byte that YAML does not allow, and the like
        first_line = str(error).splitlines()[0]
        raise StudyError(f"{source}: not valid YAML: {first_line}") from error


def _begun(error: yaml.MarkedYAMLError) -> str:
    """Where the thing begins that is not whole: an open bracket is missed only lines later."""
    if not error.context or not error.context_mark:
        return ""
    return f" ({error.context} that begins at {_place(error.context_mark)})"


def _place(mark: yaml.Mark) -> str:
    return f"line {mark.line + 1}, column {mark.column + 1}"
