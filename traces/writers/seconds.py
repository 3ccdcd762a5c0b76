"""Formats of times and lengths alone: Azure's, Vidur's, Splitwise's, BurstGPT's columns."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from traces.trace import Trace
from traces.writers.losses import lost_columns

_AZURE_EPOCH = np.datetime64("2024-01-01T00:00:00", "ns")
_TICK_NS = 100


@dataclass(frozen=True, slots=True)
class PlainCsv:
    """Three columns of some project."""

    name: str
    header: tuple[str, str, str]
    times: Callable[[Trace], list[Any]]
    time_losses: Callable[[Trace], list[str]]
    line_end: str = "\n"

    def losses(self, trace: Trace) -> list[str]:
        """All but times and lengths."""
        return [*lost_columns(trace, ()), *self.time_losses(trace)]

    def write(self, trace: Trace, path: Path) -> None:
        """One row a request."""
        lengths = (trace.num_prompt_tokens.tolist(), trace.num_output_tokens.tolist())
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator=self.line_end)
            writer.writerow(self.header)
            writer.writerows(zip(self.times(trace), *lengths, strict=True))


def _seconds(trace: Trace) -> list[Any]:
    times: list[Any] = trace.arrival_s.tolist()
    return times


def _begins_late(trace: Trace) -> list[str]:
    """Readers of other formats count from the first arrival."""
    return [] if trace.arrival_s[0] == 0 else ["the time before the first arrival"]


def _clock_ticks(trace: Trace) -> Any:
    return np.rint(trace.arrival_s * (1e9 / _TICK_NS)).astype(np.int64)


def _clock_losses(trace: Trace) -> list[str]:
    exact = np.array_equal((_clock_ticks(trace) * _TICK_NS) / 1_000_000_000, trace.arrival_s)
    return [*_begins_late(trace), *([] if exact else ["arrival times finer than 100 ns"])]


def _clock_times(trace: Trace) -> list[Any]:
    """Clock times of 2024, seven digits after the second."""
    stamps = _AZURE_EPOCH + (_clock_ticks(trace) * _TICK_NS).astype("timedelta64[ns]")
    texts = np.datetime_as_string(stamps, unit="ns").tolist()
    return [text.replace("T", " ")[:-2] for text in texts]


AZURE = PlainCsv(
    "azure",
    ("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
    _clock_times,
    _clock_losses,
    line_end="\r\n",
)
VIDUR = PlainCsv(
    "vidur", ("arrived_at", "num_prefill_tokens", "num_decode_tokens"), _seconds, _begins_late
)
SPLITWISE = PlainCsv(
    "splitwise", ("arrival_timestamp", "prompt_size", "token_size"), _seconds, _begins_late
)
BURSTGPT = PlainCsv(
    "burstgpt", ("Timestamp", "Request tokens", "Response tokens"), _seconds, _begins_late
)
