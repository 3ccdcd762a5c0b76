"""Pydantic's errors as one clear sentence: the key's path, the value, and what would be right."""

import difflib
import json
import types
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from sim.config.not_modelled import said_of

Loc = tuple[int | str, ...]

_UNIONS = (Union, types.UnionType)
_WHAT_IS_RIGHT = {
    "int_type": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "string_type": "text",
    "model_type": "a mapping of keys",
    "model_attributes_type": "a mapping of keys",
    "dict_type": "a mapping of keys",
}
_OTHERS = {
    "missing": "missing; it has no default",
    "union_tag_not_found": "the key {discriminator} is missing",
    "literal_error": "{shown} is not one of {expected}",
    "string_too_short": "it is empty text",
    "too_short": "{shown} has {actual_length} of at least {min_length} entries",
    "string_pattern_mismatch": "{shown} may hold only letters, digits, '.', '_' and '-', "
    "and begin with a letter or digit",
}
_BOUNDS = {
    "greater_than": ("more than", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("less than", "lt"),
    "less_than_equal": ("at most", "le"),
}


def first_error(error: ValidationError, model: type[BaseModel]) -> tuple[str, str]:
    """Return the dotted path and the sentence of the first error, and how many more there are.

    Args:
        error: what pydantic raised for `model`.
        model: the model of the whole file; unknown keys are compared with its fields.
    """
    # Unknown keys first: a misspelt key also makes the right one missing.
    details = sorted(
        error.errors(include_url=False), key=lambda detail: detail["type"] != "extra_forbidden"
    )
    path, sentence = _describe(details[0], model)
    others = [".".join(_key_path(d["loc"], model)) for d in details[1:]]
    more = f" (also wrong: {', '.join(dict.fromkeys(others))})" if others else ""
    return path, sentence + more


def nearest(word: object, known: Iterable[str]) -> str:
    """A hint for a misspelt word: the closest known one, or else all of them."""
    names = sorted(known)
    close = difflib.get_close_matches(str(word), names, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(names)}"


def _right_key(word: str, loc: Loc, model: type[BaseModel]) -> str:
    """As `nearest`; but a key of some section at the top of the file is named with its section."""
    if not loc and word == "sweep":
        return "it is for headway sweep, curve, capacity and advise; a run takes none"
    sections = {} if loc else {name: _fields_at((name,), model) for name in model.model_fields}
    homes = [f"{name}.{word}" for name, fields in sections.items() if word in fields]
    return f"did you mean {homes[0]!r}?" if homes else nearest(word, _fields_at(loc, model))


def _describe(detail: ErrorDetails, model: type[BaseModel]) -> tuple[str, str]:
    keys = _key_path(detail["loc"], model)
    return ".".join(keys), _sentence(detail, keys, model)


def _sentence(detail: ErrorDetails, keys: list[str], model: type[BaseModel]) -> str:
    kind, shown, context = detail["type"], _shown(detail["input"]), detail.get("ctx", {})
    if kind == "extra_forbidden":
        return _unknown_key(keys, detail["loc"][:-1], model)
    if kind == "union_tag_invalid":
        return _unknown_tag(context)
    if kind == "too_short" and not detail["input"]:
        return "it is empty; give entries, or leave the key out"
    if kind in _BOUNDS:
        words, bound = _BOUNDS[kind]
        return f"{shown} is out of range; it must be {words} {context[bound]}"
    if kind in _WHAT_IS_RIGHT:
        return f"{shown} is not {_WHAT_IS_RIGHT[kind]}"
    return _OTHERS.get(kind, "{shown}: {msg}").format(shown=shown, msg=detail["msg"], **context)


def _unknown_key(keys: list[str], loc: Loc, model: type[BaseModel]) -> str:
    of_vllm = said_of(keys[-1]) if keys[0] == "engine" or not loc else None
    return of_vllm or f"unknown key; {_right_key(keys[-1], loc, model)}"


def _unknown_tag(context: Mapping[str, Any]) -> str:
    known = [name.strip(" '") for name in str(context["expected_tags"]).split(",")]
    key = str(context["discriminator"]).strip("'")
    return f"{key} {context['tag']!r} is unknown; {nearest(context['tag'], known)}"


def _shown(value: object) -> str:
    """The value as YAML has it, cut if long."""
    text = json.dumps(value) if value is None or isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _key_path(loc: Loc, model: type[BaseModel]) -> list[str]:
    """The keys as written in the file: pydantic puts union tags between them."""
    keys: list[str] = []
    current: Any = model
    for part in loc:
        choices = _tagged_models(current)
        if part in choices:
            current = choices[part]
            continue
        keys.append(str(part))
        current = _field_type(current, part)
    return keys or ["the study"]


def _fields_at(loc: Loc, model: type[BaseModel]) -> list[str]:
    current: Any = model
    for part in loc:
        current = _tagged_models(current).get(part) or _field_type(current, part)
    return list(current.model_fields) if _is_model(current) else []


def _field_type(model: Any, key: int | str) -> Any:
    if not _is_model(model) or key not in model.model_fields:
        return None
    annotation = model.model_fields[key].annotation
    parts = [part for part in get_args(annotation) if part is not type(None)]
    is_optional = get_origin(annotation) in _UNIONS and len(parts) == 1
    return parts[0] if is_optional else annotation


def _is_model(candidate: Any) -> bool:
    return isinstance(candidate, type) and issubclass(candidate, BaseModel)


def _tagged_models(annotation: Any) -> Mapping[int | str, type[BaseModel]]:
    """The models of a discriminated union by their tag; empty for anything else."""
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) not in _UNIONS:
        return {}
    models = [m for m in get_args(annotation) if _is_model(m)]
    return {tag: m for m in models for tag in _literal_tags(m)}


def _literal_tags(model: type[BaseModel]) -> list[str]:
    first = next(iter(model.model_fields.values()))
    is_literal = get_origin(first.annotation) is Literal
    return [str(tag) for tag in get_args(first.annotation)] if is_literal else []
