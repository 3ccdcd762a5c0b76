"""A measured result beside a simulated run: the same metrics, defined the same, and their errors.

Both sides are brought to our definitions from the requests themselves, never from a tool's own
summary: TTFT first token - sending, TPOT (last token - first token) / (output tokens - 1) one value
a request (aiperf and guidellm call it inter-token latency), E2E last token - sending, ITL every
gap, pooled, where the tool records gaps. Only requests that succeeded enter.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sim.metrics import e2e_s, finished_gaps, finished_values, is_finished, stats_of, tpot_s, ttft_s
from sim.run_result import Columns, RunResult
from traces import Measured

FloatArray = npt.NDArray[np.float64]

STATS = ("count", "mean", "p50", "p90", "p95", "p99", "max")


@dataclass(frozen=True, slots=True)
class Sample:
    """Values of one metric on both sides; `simulated_counts` says how often each value occurs."""

    measured: FloatArray
    simulated: FloatArray
    simulated_counts: npt.NDArray[np.int64] | None = None


@dataclass(frozen=True, slots=True)
class Overlay:
    """A measured result and a run, metric by metric, in the order of the table."""

    measured: Measured
    samples: Mapping[str, Sample]
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Statistics of both sides and relative errors, (simulated - measured) / measured."""
        return {
            "tool": self.measured.tool,
            "measured": self.measured.name,
            "metrics": {name: _compared(sample) for name, sample in self.samples.items()},
            "notes": list(self.notes),
        }


def overlay(run: RunResult, measured: Measured) -> Overlay:
    """Put a measured result beside a run."""
    requests = run.requests
    gaps = finished_gaps(requests, run.steps, run.gaps)
    samples = {
        "prompt tokens": _lengths(measured, requests, "num_prompt_tokens"),
        "output tokens": _lengths(measured, requests, "num_output_tokens"),
        "TTFT (s)": Sample(measured.values("ttft_s"), finished_values(requests, ttft_s(requests))),
        "TPOT (s)": Sample(measured.values("tpot_s"), finished_values(requests, tpot_s(requests))),
        "E2E (s)": Sample(measured.values("e2e_s"), finished_values(requests, e2e_s(requests))),
        "ITL, pooled (s)": Sample(measured.gaps_s, gaps.gap_s, gaps.count),
    }
    # What the tool did not record can't be compared.
    kept = {name: sample for name, sample in samples.items() if len(sample.measured)}
    return Overlay(measured, kept, _notes(run, measured, kept))


def _lengths(measured: Measured, requests: Columns, name: str) -> Sample:
    ours = np.asarray(requests[name], dtype=np.float64)[is_finished(requests)]
    return Sample(measured.values(name), ours)


def _notes(run: RunResult, measured: Measured, kept: Mapping[str, Sample]) -> tuple[str, ...]:
    notes = list(measured.notes)
    if "ITL, pooled (s)" not in kept:
        notes.append(f"{measured.tool} did not record gaps between tokens: no pooled ITL")
    failed = ", ".join(f"{number} {reason}" for reason, number in measured.num_failed.items())
    if failed:
        notes.append(f"measured requests left out: {failed}")
    num_left = int((~is_finished(run.requests)).sum())
    if num_left:
        notes.append(f"simulated requests left out: {num_left} that did not finish")
    for name in ("prompt tokens", "output tokens"):
        sample = kept.get(name)
        if sample is not None and not _same_lengths(sample):
            notes.append(
                f"{name} differ between the two sides, so latencies are not of the same requests"
            )
    return tuple(notes)


def _same_lengths(sample: Sample) -> bool:
    return np.array_equal(np.sort(sample.measured), np.sort(sample.simulated))


def _compared(sample: Sample) -> dict[str, dict[str, float | int | None]]:
    ours = stats_of(sample.simulated, sample.simulated_counts)
    theirs = stats_of(sample.measured)
    return {
        name: {
            "measured": theirs[name],
            "simulated": ours[name],
            "error": _error(theirs[name], ours[name]),
        }
        for name in STATS
    }


def _error(measured: float | None, simulated: float | None) -> float | None:
    if measured is None or simulated is None or not measured:
        return None
    return (simulated - measured) / measured
