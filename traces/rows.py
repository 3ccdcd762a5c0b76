"""Rows of a file a batch at a time, and what becomes of the bad ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal, Protocol, TypeVar

from traces.errors import RowError

ROWS_PER_CHUNK = 65_536

OnBadRow = Literal["error", "skip"]

Row = TypeVar("Row")


class Some(Protocol):
    """Rows that can be counted and cut."""

    def __len__(self) -> int: ...

    def __getitem__(self: Rows, part: slice, /) -> Rows: ...


Rows = TypeVar("Rows", bound=Some)
Parsed = TypeVar("Parsed")


@dataclass(slots=True)
class BadRows:
    """The rule for rows that are wrong: raise for the first, or leave out and count by reason."""

    rule: OnBadRow = "error"
    num_by_reason: Counter[str] = field(default_factory=Counter)
    first: list[str] = field(default_factory=list)

    def parsed(self, rows: Rows, parse: Callable[[Rows], Parsed]) -> Iterator[Parsed]:
        """`parse` of the good rows, in order: of all at once where none is bad.

        Raises:
            RowError: the rule is "error" and a row is bad.
        """
        try:
            yield parse(rows)
            return
        except RowError as error:
            if self.rule == "error":
                raise
            if len(rows) == 1:
                self._count(error)
                return
        # Halve until the bad row stands alone: few steps for few bad rows.
        half = len(rows) // 2
        yield from self.parsed(rows[:half], parse)
        yield from self.parsed(rows[half:], parse)

    def refused(self, error: RowError) -> None:
        """A row is bad: raise `error`, or count it."""
        if self.rule == "error":
            raise error
        self._count(error)

    def _count(self, error: RowError) -> None:
        if not self.first:
            self.first.append(str(error))
        self.num_by_reason[error.reason] += 1


def batches(rows: Iterable[Row], size: int | None = None) -> Iterator[list[Row]]:
    """The rows in lists of `ROWS_PER_CHUNK`, the last one shorter."""
    iterator = iter(rows)
    while batch := list(islice(iterator, size or ROWS_PER_CHUNK)):
        yield batch
