"""The one error of this room: what is wrong with a trace, where, and what would be right."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

_LONGEST_SHOWN = 60


class TraceError(ValueError):
    """A trace, or a request to make one, is wrong; the message is one sentence for the user."""


class RowError(TraceError):
    """One row of a file is wrong; the others may be right. `reason` is the kind, for counting."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason

    def __reduce__(self) -> tuple[type[RowError], tuple[str, str]]:
        return RowError, (str(self), self.reason)


def shown(value: object) -> str:
    """`value` as an error shows it: `repr`, cut when long."""
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}... (cut)"


def bad_value(path: str, place: str, field: str, value: object, right: str) -> RowError:
    """Error for one cell. `place` is like "line 7"; `right` says what the field must be."""
    message = f"{path}, {place}, {field}: {shown(value)} is wrong; it must be {right}"
    return RowError(message, f"bad {field}")


def bad_row(path: str, place: str, what: str, reason: str) -> RowError:
    """Error for a whole row; `reason` is its kind in a few words, for counting."""
    return RowError(f"{path}, {place}: {what}", reason)


def bad_place(path: str, place: str, what: str) -> TraceError:
    """Error for a place in a file (a whole row, a header, a JSON object)."""
    return TraceError(f"{path}, {place}: {what}")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`"; did you mean 'x'?"` for the nearest of `known`, ignoring case; `""` if none is near."""
    near = nearest(name, known)
    return "" if near is None else f"; did you mean {near!r}?"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The one of `known` spelt most like `name`, ignoring case; None if none is near."""
    by_folded = {each.casefold(): each for each in known}
    close = difflib.get_close_matches(name.casefold(), by_folded, n=1, cutoff=0.7)
    return by_folded[close[0]] if close else None


def listed(names: Sequence[str]) -> str:
    """`names` as a reader lists them: "a, b and c"."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"
