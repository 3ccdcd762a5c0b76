"""Nearest-name suggestions for a name that is not known."""

from collections.abc import Iterable
from difflib import get_close_matches


def unknown_name(kind: str, name: str, known: Iterable[str]) -> str:
    """Return the sentence for an unknown `name`: the nearest known one, or the whole list."""
    names = sorted(known)
    near = get_close_matches(name.lower(), names, n=1, cutoff=0.5)
    if near:
        hint = f"did you mean {near[0]!r}?"
    else:
        hint = f"known: {', '.join(names)}"
    return f"unknown {kind} {name!r}; {hint}"
