"""Order statistics of a weighted sample of any size, exact, without sorting or holding it.

A float's bits, read as a whole number (the sign turned), are in the order of the floats. So the
element at a rank is found digit by digit, as in radix selection: a histogram of the leading bits
says which leading bits the element has, one of the next bits among those elements says more, and
so on. Each is one walk over the sample. As soon as the elements that share an element's leading
bits are few, they are gathered and sorted instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Part = tuple[npt.NDArray[Any], npt.NDArray[Any]]
"""Some values, not NaN, and how often each occurs: whole numbers of at least 0."""
Walk = Callable[[], Iterator[Part]]
"""A new walk over all parts of a sample."""

_FEW = 1 << 22  # elements that may be gathered
_TINY = 1 << 14
_DIGITS = (42, 21, 0)  # shifts: 22, 21 and 21 bits
_ALL = 64  # the shift that leaves no bits
_SIGN = np.uint64(1 << 63)


@dataclass(slots=True)
class _Search:
    """Ranks whose elements share the bits above `shift`, and how many elements lie before those."""

    prefix: int
    shift: int
    ranks: list[int]
    num_before: int
    num_rows: int


class Survey:
    """A first look at a sample, taken while something else walks over it: its leading bits."""

    def __init__(self) -> None:
        self.num_rows = 0
        self._few: list[Part] = []
        self.histogram: _Histogram | None = None  # None: so few elements that sorting is quicker

    def add(self, values: npt.NDArray[Any], counts: npt.NDArray[Any]) -> None:
        """Take in a part."""
        self.num_rows += len(values)
        if self.histogram is None and self.num_rows > _TINY:
            self.histogram = _Histogram()
            for part in self._few:
                self._count(self.histogram, *part)
            self._few = []
        if self.histogram is None:
            self._few.append((values, counts))
        else:
            self._count(self.histogram, values, counts)

    @staticmethod
    def _count(histogram: _Histogram, values: npt.NDArray[Any], counts: npt.NDArray[Any]) -> None:
        histogram.add(ordered_bits(values) >> np.uint64(_DIGITS[0]), counts)


def survey_of(walk: Walk) -> Survey:
    """The first look, as a walk of its own."""
    survey = Survey()
    for part in walk():
        survey.add(*part)
    return survey


def values_at(walk: Walk, ranks: Sequence[int], survey: Survey) -> dict[int, float]:
    """The element at each rank (from 0) of the sample in ascending order.

    `survey` has seen the whole sample. Raises IndexError for a rank that the sample has not.
    """
    found: dict[int, float] = {}
    whole = _Search(0, _ALL, sorted(set(ranks)), 0, 0)
    if survey.histogram is None:
        return _gathered(walk, [whole])
    searches = _split(whole, survey.histogram, _DIGITS[0])
    for shift in _DIGITS[1:]:
        small = _small(searches)
        found |= _gathered(walk, small)
        searches = [each for each in searches if each not in small]
        if not searches:
            return found
        searches = _narrowed(walk, searches, shift)
    # Nothing is left to tell the elements of a search apart: they are equal.
    for each in searches:
        found |= dict.fromkeys(each.ranks, _as_float(each.prefix))
    return found


def _small(searches: Sequence[_Search]) -> list[_Search]:
    """Those whose elements may be gathered; none where they are too many together."""
    small = [each for each in searches if each.num_rows <= _FEW]
    return small if sum(each.num_rows for each in small) <= 2 * _FEW else []


def ordered_bits(values: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """Whole numbers in the order of the floats."""
    # Adding 0.0 turns -0.0 into 0.0: they are equal as floats.
    plain = np.asarray(values, dtype=np.float64) + 0.0
    bits = plain.view(np.uint64)
    if not len(plain) or plain.min() >= 0:  # times and counts: nearly always
        return np.bitwise_or(bits, _SIGN, out=bits)
    return np.where(bits & _SIGN, ~bits, bits | _SIGN)


def _as_float(ordered: int) -> float:
    bits = np.array([ordered], dtype=np.uint64)
    plain = np.where(bits & _SIGN, bits ^ _SIGN, ~bits)
    return float(plain.view(np.float64)[0])


def _narrowed(walk: Walk, searches: Sequence[_Search], shift: int) -> list[_Search]:
    """The searches with the bits down to `shift` known."""
    histograms = [_Histogram() for _ in searches]
    for values, counts in walk():
        bits = ordered_bits(values)
        for search, histogram in zip(searches, histograms, strict=True):
            mine = _matches(bits, search)
            histogram.add(bits[mine] >> np.uint64(shift), counts[mine])
    return [
        each
        for search, histogram in zip(searches, histograms, strict=True)
        for each in _split(search, histogram, shift)
    ]


def _matches(bits: npt.NDArray[np.uint64], search: _Search) -> Any:
    """Which elements may be those of a search: an index."""
    if search.shift == _ALL:
        return slice(None)
    return np.flatnonzero((bits >> np.uint64(search.shift)) == np.uint64(search.prefix))


class _Histogram:
    """Weights and numbers of rows by a whole number that takes neighbouring values."""

    def __init__(self) -> None:
        self.first = 0
        self.weights: IntArray = np.empty(0, np.int64)
        self.rows: IntArray = np.empty(0, np.int64)

    def add(self, keys: npt.NDArray[np.uint64], counts: npt.NDArray[Any]) -> None:
        if not len(keys):
            return
        low = int(keys.min())
        places = (keys - np.uint64(low)).astype(np.int64)
        rows = np.bincount(places)
        # Floats hold sums of counts exactly up to 2^53.
        weights = np.bincount(places, weights=counts).astype(np.int64)
        self._make_room(low, low + len(rows))
        start = low - self.first
        self.rows[start : start + len(rows)] += rows
        self.weights[start : start + len(rows)] += weights

    def _make_room(self, low: int, high: int) -> None:
        if not len(self.rows):
            self.first = low
        before = max(self.first - low, 0)
        after = max(high - (self.first + len(self.rows)), 0)
        if before or after:
            self.rows = np.pad(self.rows, (before, after))
            self.weights = np.pad(self.weights, (before, after))
            self.first -= before


def _split(search: _Search, histogram: _Histogram, shift: int) -> list[_Search]:
    """A search as one for each leading bits that its ranks turn out to have."""
    last = search.num_before + np.cumsum(histogram.weights)
    places = np.searchsorted(last, search.ranks, side="right")
    if len(places) and places[-1] >= len(last):
        raise IndexError(f"rank {search.ranks[-1]} of a sample of {last[-1] if len(last) else 0}")
    parts: list[_Search] = []
    for place in np.unique(places).tolist():
        ranks = [r for r, p in zip(search.ranks, places.tolist(), strict=True) if p == place]
        before = int(last[place]) - int(histogram.weights[place])
        num_rows = int(histogram.rows[place])
        parts.append(_Search(histogram.first + place, shift, ranks, before, num_rows))
    return parts


def _gathered(walk: Walk, searches: Sequence[_Search]) -> dict[int, float]:
    """Gather and sort the elements of each search, and look its ranks up."""
    if not searches:
        return {}
    kept: list[list[Part]] = [[] for _ in searches]
    for values, counts in walk():
        bits = ordered_bits(values)
        for search, parts in zip(searches, kept, strict=True):
            mine = _matches(bits, search)
            parts.append((values[mine], counts[mine]))
    found: dict[int, float] = {}
    for search, parts in zip(searches, kept, strict=True):
        values = np.concatenate([part[0] for part in parts])
        counts = np.concatenate([part[1] for part in parts])
        order = np.argsort(values)
        last = search.num_before + np.cumsum(counts[order])
        at = np.searchsorted(last, search.ranks, side="right")
        if at.max(initial=-1) >= len(last):
            raise IndexError(f"rank {search.ranks[-1]} is beyond the sample")
        found |= zip(search.ranks, (float(x) for x in values[order][at]), strict=True)
    return found
