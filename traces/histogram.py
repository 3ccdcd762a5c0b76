"""Exact counts of whole numbers, gathered a chunk at a time: memory for distinct values only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from traces.arrays import IntArray


class Histogram:
    """Distinct values, ascending, and how often each occurred."""

    def __init__(self) -> None:
        self.values: IntArray = np.zeros(0, dtype=np.int64)
        self.counts: IntArray = np.zeros(0, dtype=np.int64)

    def add(self, values: npt.NDArray[Any]) -> None:
        """Count some more values."""
        new, counts = np.unique(values, return_counts=True)
        merged, place = np.unique(np.concatenate([self.values, new]), return_inverse=True)
        total = np.zeros(len(merged), dtype=np.int64)
        np.add.at(total, place, np.concatenate([self.counts, counts]))
        self.values, self.counts = merged, total

    @property
    def total(self) -> int:
        """How many values there were."""
        return int(self.counts.sum())

    @property
    def sum(self) -> int:
        """Sum of all values."""
        return int((self.values * self.counts).sum())

    @property
    def mean(self) -> float:
        """Mean of all values."""
        return self.sum / self.total

    def percentile(self, percent: float) -> float:
        """As numpy's "linear" of all values; `percent` from 0 to 100."""
        last = np.cumsum(self.counts)
        position = (self.total - 1) * percent / 100
        low, high = self.values[
            np.searchsorted(last, [int(position), min(int(position) + 1, self.total - 1)], "right")
        ].tolist()
        return float(low + (high - low) * (position - int(position)))

    def percentiles(self, percents: Sequence[float]) -> list[float]:
        """Several of them."""
        return [self.percentile(percent) for percent in percents]
