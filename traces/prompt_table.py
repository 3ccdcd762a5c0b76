"""Prompts of many requests as a few arrays: 17 bytes a segment, read as tuples when asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from traces.arrays import IntArray
from traces.request import Prompt

BoolArray = npt.NDArray[np.bool_]

_ITERATED_AT_ONCE = 4_096


class PromptTable(Sequence[Prompt]):
    """One prompt a row, read-only; row i is the segments `offsets[i]` to `offsets[i + 1]`.

    A sequence of `Prompt`: indexing and iterating give tuples of `(segment_id, num_tokens)`, an
    empty one for content of its own. Text ids are kept once, in `names`.

    Attributes:
        offsets: where each row's segments begin; one more element than rows, the first 0.
        ids: of each segment: its integer id, or its place in `names`.
        is_text: of each segment: whether `ids` is a place in `names`.
        lengths: of each segment, tokens.
        names: the text ids.
    """

    __slots__ = ("ids", "is_text", "lengths", "names", "offsets")

    def __init__(
        self,
        offsets: npt.ArrayLike,
        ids: npt.ArrayLike,
        lengths: npt.ArrayLike,
        is_text: npt.ArrayLike | None = None,
        names: Sequence[str] = (),
    ) -> None:
        self.offsets = _frozen(offsets, np.int64)
        self.ids = _frozen(ids, np.int64)
        self.lengths = _frozen(lengths, np.int64)
        texts = np.zeros(len(self.ids), dtype=np.bool_) if is_text is None else is_text
        self.is_text = _frozen(texts, np.bool_)
        self.names = tuple(names)

    @classmethod
    def from_prompts(cls, prompts: Iterable[Prompt]) -> PromptTable:
        """The table of prompts given as tuples, whose ids and lengths are right already."""
        places: dict[str, int] = {}
        counts, ids, lengths, is_text = [0], [], [], []
        for prompt in prompts:
            counts.append(len(prompt))
            for segment_id, num_tokens in prompt:
                text = isinstance(segment_id, str)
                is_text.append(text)
                # A text's place is the number of texts before it, so first come, first numbered.
                ids.append(places.setdefault(segment_id, len(places)) if text else segment_id)  # type: ignore[arg-type]
                lengths.append(num_tokens)
        return cls(np.cumsum(counts), ids, lengths, is_text, tuple(places))

    @classmethod
    def empty(cls, num_rows: int) -> PromptTable:
        """Rows without segments."""
        return cls(np.zeros(num_rows + 1, dtype=np.int64), [], [])

    @classmethod
    def concatenate(cls, tables: Sequence[PromptTable]) -> PromptTable:
        """The rows of all tables, in order; equal ids mean the same content in all of them."""
        num_names = np.cumsum([0, *(len(table.names) for table in tables)])
        num_segments = np.cumsum([0, *(len(table.ids) for table in tables)])
        return cls(
            np.concatenate(
                [[0], *(t.offsets[1:] + n for t, n in zip(tables, num_segments, strict=False))]
            ),
            np.concatenate(
                [
                    np.where(t.is_text, t.ids + n, t.ids)
                    for t, n in zip(tables, num_names, strict=False)
                ]
            ),
            np.concatenate([table.lengths for table in tables]),
            np.concatenate([table.is_text for table in tables]),
            [name for table in tables for name in table.names],
        )

    def take(self, rows: IntArray) -> PromptTable:
        """The rows at the given places, in that order."""
        counts = self.counts[rows]
        offsets = np.concatenate([[0], np.cumsum(counts)])
        segments = np.repeat(self.offsets[rows] - offsets[:-1], counts) + np.arange(offsets[-1])
        return PromptTable(
            offsets,
            self.ids[segments],
            self.lengths[segments],
            self.is_text[segments],
            self.names,
        )

    @property
    def counts(self) -> IntArray:
        """Number of segments of each row."""
        return np.diff(self.offsets)

    @property
    def num_tokens(self) -> IntArray:
        """Sum of the segment lengths of each row; 0 for a row without segments."""
        sums = np.concatenate([[0], np.cumsum(self.lengths)])
        return np.asarray(sums[self.offsets[1:]] - sums[self.offsets[:-1]])

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, index: int) -> Prompt: ...

    @overload
    def __getitem__(self, index: slice) -> list[Prompt]: ...

    def __getitem__(self, index: int | slice) -> Prompt | list[Prompt]:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            return self._rows(start, max(stop, start))[::step] if step > 0 else list(self)[index]
        row = range(len(self))[index]
        return self._rows(row, row + 1)[0]

    def __iter__(self) -> Iterator[Prompt]:
        for start in range(0, len(self), _ITERATED_AT_ONCE):
            yield from self._rows(start, min(start + _ITERATED_AT_ONCE, len(self)))

    def __reduce__(self) -> tuple[type[PromptTable], tuple[Any, ...]]:
        # Through the constructor: plain unpickling would give writable arrays.
        return PromptTable, (self.offsets, self.ids, self.lengths, self.is_text, self.names)

    def content_bytes(self) -> Iterator[bytes]:
        """Bytes equal for tables of equal prompts, however their texts are numbered."""
        places, names = first_come_numbers(self.ids[self.is_text], self.names)
        ids = self.ids.copy()
        ids[self.is_text] = places
        for column in (self.offsets, ids, self.lengths, self.is_text):
            yield column.astype(column.dtype.newbyteorder("<")).tobytes()
        yield "\0".join(names).encode()

    def _rows(self, start: int, stop: int) -> list[Prompt]:
        if stop <= start:
            return []
        bounds = self.offsets[start : stop + 1].tolist()
        first, last = bounds[0], bounds[-1]
        ids: list[Any] = self.ids[first:last].tolist()
        for place in np.flatnonzero(self.is_text[first:last]).tolist():
            ids[place] = self.names[ids[place]]
        segments = list(zip(ids, self.lengths[first:last].tolist(), strict=True))
        return [tuple(segments[a - first : b - first]) for a, b in pairwise(bounds)]


def first_come_numbers(places: IntArray, names: Sequence[str]) -> tuple[IntArray, list[str]]:
    """`places` in `names` as numbers in order of first occurrence of each text, and the texts."""
    used, first, inverse = np.unique(places, return_index=True, return_inverse=True)
    numbers: dict[str, int] = {}
    new = np.empty(len(used), dtype=np.int64)
    for place in np.argsort(first).tolist():
        new[place] = numbers.setdefault(names[used[place]], len(numbers))
    return new[inverse], list(numbers)


def _frozen(values: npt.ArrayLike, dtype: Any) -> npt.NDArray[Any]:
    """A copy over immutable bytes: `setflags` can't make it writable again."""
    return np.frombuffer(np.asarray(values, dtype=dtype).tobytes(), dtype=dtype)
