"""A column of texts that repeat, or are absent: sessions and tenants."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from traces.arrays import IntArray
from traces.prompt_table import first_come_numbers

NONE = -1


class Labels:
    """One text or None a row, read-only: `codes` are places in `names`, -1 for none."""

    __slots__ = ("codes", "names")

    def __init__(self, codes: npt.ArrayLike, names: Sequence[str]) -> None:
        array = np.asarray(codes, dtype=np.int64)
        self.codes: IntArray = np.frombuffer(array.tobytes(), dtype=np.int64)
        self.names = tuple(names)

    @classmethod
    def from_values(cls, values: Iterable[str | None]) -> Labels:
        """Labels of the texts given."""
        places: dict[str, int] = {}
        codes = [NONE if text is None else places.setdefault(text, len(places)) for text in values]
        return cls(codes, tuple(places))

    @classmethod
    def none(cls, num_rows: int) -> Labels:
        """Rows without a text."""
        return cls(np.full(num_rows, NONE), ())

    @classmethod
    def concatenate(cls, parts: Sequence[Labels]) -> Labels:
        """All rows, in order; equal texts are one label."""
        starts = np.cumsum([0, *(len(part.names) for part in parts)])
        names = [name for part in parts for name in part.names]
        shifted = [
            np.where(part.codes == NONE, NONE, part.codes + start)
            for part, start in zip(parts, starts, strict=False)
        ]
        return cls(np.concatenate(shifted), names).tidy()

    def tidy(self) -> Labels:
        """The same texts numbered in order of occurrence, each once, unused ones left out."""
        present = self.codes != NONE
        numbers, names = first_come_numbers(self.codes[present], self.names)
        codes = np.full(len(self.codes), NONE, dtype=np.int64)
        codes[present] = numbers
        return Labels(codes, names)

    def take(self, rows: npt.NDArray[Any]) -> Labels:
        """The rows at the given places, in that order."""
        return Labels(self.codes[rows], self.names).tidy()

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, row: int) -> str | None:
        code = int(self.codes[row])
        return None if code == NONE else self.names[code]

    def __iter__(self) -> Iterator[str | None]:
        return iter(self.values())

    def __reduce__(self) -> tuple[type[Labels], tuple[Any, ...]]:
        return Labels, (self.codes, self.names)

    def values(self, rows: slice = slice(None)) -> list[str | None]:
        """The texts of some rows."""
        names: list[str | None] = [*self.names, None]
        return [names[code] for code in self.codes[rows].tolist()]

    def content_bytes(self) -> Iterator[bytes]:
        """Bytes equal for equal texts, however they are numbered."""
        tidy = self.tidy()
        yield tidy.codes.astype("<i8").tobytes()
        yield "\0".join(tidy.names).encode()
