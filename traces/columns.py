"""Which columns a file has, which it must have, and the nearest name for a misspelt one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from traces.errors import TraceError, bad_place, did_you_mean, listed, nearest, shown

_MISSPELT = 0.9
_STRANGE = 0.02


@dataclass(frozen=True, slots=True)
class ColumnNames:
    """The names that a format knows; any other is an error."""

    required: tuple[str, ...]
    optional: tuple[str, ...] = ()

    @property
    def known(self) -> tuple[str, ...]:
        """All names, the required ones first."""
        return self.required + self.optional

    def score(self, found: Sequence[str]) -> float:
        """Share of the required names in `found`, near misses counted a little less.

        Every name that is not known makes the score a little smaller, so that of two formats
        that have what they need, the one that knows the whole file wins.
        """
        share = sum(self._score_one(name, found) for name in self.required) / len(self.required)
        num_strange = sum(name not in self.known for name in found)
        return max(share - _STRANGE * num_strange, 0.0)

    def _score_one(self, name: str, found: Sequence[str]) -> float:
        if name in found:
            return 1.0
        return 0.0 if nearest(name, found) is None else _MISSPELT

    def fault(self, kind: str, found: Sequence[str]) -> str | None:
        """What is wrong with the names `found` of columns or keys; None if nothing is."""
        repeated = [name for index, name in enumerate(found) if name in found[:index]]
        if repeated:
            return f"{kind} {repeated[0]!r} occurs twice; each must occur once"
        missing = [name for name in self.required if name not in found]
        for name in found:
            if name not in self.known:
                return f"unknown {kind} {shown(name)}{self._hint(name, missing)}"
        if missing:
            return f"{kind} {missing[0]!r} is missing; there are only {listed(list(found))}"
        return None

    def _hint(self, name: str, missing: Sequence[str]) -> str:
        near = did_you_mean(name, missing) or did_you_mean(name, self.known)
        return near or f"; known are {listed(self.known)}"

    def check(self, path: str, place: str, kind: str, found: Sequence[str]) -> None:
        """Raise TraceError at `place` unless `found` are right; `kind` is "column" or "key"."""
        fault = self.fault(kind, found)
        if fault is not None:
            raise bad_place(path, place, fault)


def unknown_format(path: str, first_line: str, known: Sequence[str]) -> TraceError:
    """Error for a file whose beginning no format knows."""
    first = first_line if len(first_line) <= 120 else first_line[:120] + "..."
    hint = ""
    for separator, word in ((";", "';'"), ("\t", "a tab")):
        if separator in first_line and "," not in first_line:
            hint = f"; cells look separated by {word}, but must be by ','"
    kind = "JSON" if first_line.startswith(("{", "[", '"')) else "CSV"
    alike = [summary for summary in known if summary.startswith(kind)]
    others = "with tables" if kind == "JSON" else "of JSON"
    what = (
        f"{first!r} begins no trace format known{hint}; known are: {'; '.join(alike)}; and "
        f"{len(known) - len(alike)} formats {others}"
    )
    return bad_place(path, "line 1", what)
