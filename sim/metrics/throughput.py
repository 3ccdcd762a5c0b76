"""Throughput over the whole run and over a steady window of it, and goodput under SLOs."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sim.metrics.latency import e2e_s, is_finished, tpot_s, ttft_s
from sim.rows import num_rows, pieces
from sim.run_result import Columns, Slo

STEADY_SHARE = (0.25, 0.75)
"""The steady window, as shares of the time in which requests arrived."""


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of simulated time, seconds: `start_s` <= t < `end_s`."""

    start_s: float
    end_s: float

    @property
    def length_s(self) -> float:
        """Length in seconds."""
        return self.end_s - self.start_s

    def holds(self, times_s: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Which of the times lie inside; NaN does not."""
        return np.asarray((times_s >= self.start_s) & (times_s < self.end_s), dtype=np.bool_)


def completion_span(requests: Columns) -> Window | None:
    """From the first arrival to the last completion; None if nothing finished."""
    finished = is_finished(requests)
    if not finished.any():
        return None
    start_s = float(requests["arrival_s"].min())
    return Window(start_s, float(requests["last_token_s"][finished].max()))


def steady_window(requests: Columns, last_end_s: float | None) -> Window | None:
    """The middle half of the time in which requests arrived: no ramp up, no drain.

    That time ends with the last step, at `last_end_s`, where a run was stopped before its last
    arrival. None if all arrive at once, or if no step ran.
    """
    if last_end_s is None:
        return None
    arrival_s = requests["arrival_s"]
    first_s = float(arrival_s.min())
    last_s = min(float(arrival_s.max()), last_end_s)
    low, high = (first_s + share * (last_s - first_s) for share in STEADY_SHARE)
    return Window(low, high) if high > low else None


def throughput(requests: Columns) -> dict[str, float | None]:
    """Finished requests and their tokens, a second, over `completion_span`."""
    span = completion_span(requests)
    finished = is_finished(requests)
    totals = {
        "requests_per_s": int(finished.sum()),
        "input_tokens_per_s": int(requests["num_prompt_tokens"][finished].sum()),
        "output_tokens_per_s": int(requests["num_output_tokens"][finished].sum()),
    }
    if span is None:
        return {"span_s": None, **dict.fromkeys(totals)}
    return {"span_s": span.length_s, **{k: _rate(n, span.length_s) for k, n in totals.items()}}


def steady_throughput(
    requests: Columns, steps: Columns, last_end_s: float | None
) -> dict[str, float] | None:
    """What left the cluster within `steady_window`, a second; None without a window.

    Requests: completions in it. Input tokens: prompts whose first token came in it. Output tokens:
    all that steps ending in it emitted, whatever became of their requests.
    """
    window = steady_window(requests, last_end_s)
    if window is None:
        return None
    completed = is_finished(requests) & window.holds(requests["last_token_s"])
    prompts = requests["num_prompt_tokens"][window.holds(requests["first_token_s"])]
    emitted = sum(
        int(piece["num_emitted"][window.holds(piece["end_s"])].sum())
        for piece in pieces(steps, ("end_s", "num_emitted"))
    )
    return {
        "start_s": window.start_s,
        "end_s": window.end_s,
        "requests_per_s": int(completed.sum()) / window.length_s,
        "input_tokens_per_s": int(prompts.sum()) / window.length_s,
        "output_tokens_per_s": emitted / window.length_s,
    }


def meets_slo(requests: Columns, slo: Slo) -> npt.NDArray[np.bool_]:
    """Which requests finished within every limit; without a TPOT, none can break its limit."""
    meets = is_finished(requests)
    for limit_s, value_s in (
        (slo.ttft_s, ttft_s(requests)),
        (slo.tpot_s, tpot_s(requests)),
        (slo.e2e_s, e2e_s(requests)),
    ):
        if limit_s is not None:
            meets = meets & ~(value_s > limit_s)
    return meets


def goodput(requests: Columns, slo: Slo) -> dict[str, Any] | None:
    """Requests that meet every SLO: how many, a second, as shares; None if no SLO is set.

    The share of arrived ones counts rejected, aborted and unfinished requests as misses.
    """
    if slo == Slo():
        return None
    good = int(meets_slo(requests, slo).sum())
    span = completion_span(requests)
    return {
        "slo_ttft_s": slo.ttft_s,
        "slo_tpot_s": slo.tpot_s,
        "slo_e2e_s": slo.e2e_s,
        "good_requests": good,
        "good_requests_per_s": None if span is None else _rate(good, span.length_s),
        "good_share_of_finished": share(good, int(is_finished(requests).sum())),
        "good_share_of_arrived": share(good, num_rows(requests)),
    }


def share(part: float, whole: float) -> float | None:
    """Part / whole; None if there is no whole."""
    return part / whole if whole else None


def _rate(total: int, length_s: float) -> float | None:
    return total / length_s if length_s > 0 else None
