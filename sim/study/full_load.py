"""What a cluster can do at most, from the part of an overloaded run in which all of it is busy.

A run of finite length fills, is full, and drains. Neither the whole of it nor the time in which
requests arrive shows what the cluster can do: arrivals may be over before it is full. It is full
while requests wait after every step; and its state is a lasting one when the batch is no longer
all young, a mean service time later.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sim.metrics import is_finished
from sim.metrics.steadiness import too_short, unsettled
from sim.metrics.throughput import Window
from sim.run_result import Columns, ReplicaInfo, RunResult

_NOTABLE_EXCESS = 1.02
"""Arrivals over what full replicas serve from which a run is overloaded, as for a backlog."""

_WAITING_SHARE = 0.98
"""Of the time of a stretch in which requests must wait; the queue may be empty for a moment."""


@dataclass(frozen=True, slots=True)
class FullLoad:
    """Rates at full load; `windows`: the time of each replica that they are of.

    Requests are counted as the tokens that came out by the mean output length of the run, since
    few of them may end inside a short window.
    """

    windows: tuple[Window, ...]
    requests_per_s: float
    output_tokens_per_s: float


class LastingRates(NamedTuple):
    """Rates, the part of the run that they are of, and why the run is too short for them.

    `is_saturated`: more arrives than is served. `too_short` is empty if the run is long enough;
    else the rates are None or too low.
    """

    requests_per_s: float | None
    output_tokens_per_s: float | None
    part: str
    too_short: str
    is_saturated: bool


def full_load(
    requests: Columns, steps: Columns, replicas: Sequence[ReplicaInfo]
) -> FullLoad | None:
    """The rates at full load; None if a replica is never full for two mean service times.

    Replicas add up, each with its own time of being full: in a longer run they would all be so.
    """
    finished = is_finished(requests)
    lengths = requests["num_output_tokens"][finished]
    if not lengths.any():
        return None
    service_s = float((requests["last_token_s"] - requests["first_scheduled_s"])[finished].mean())
    found = [_full_replica(steps, number, service_s) for number in range(len(replicas))]
    known = [one for one in found if one is not None]
    if len(known) < len(found):
        return None
    tokens_per_s = sum(rate for _, rate in known)
    return FullLoad(
        tuple(window for window, _ in known), tokens_per_s / float(lengths.mean()), tokens_per_s
    )


def lasting_rates(run: RunResult, is_growing: bool, steady: Mapping[str, Any]) -> LastingRates:
    """Requests and output tokens a second that would last if the run went on for ever.

    Saturated (the backlog is growing, or more arrives than full replicas serve): those at full
    load. Else those of the steady window, `steady`, unless the arrivals of an open load last less
    than four mean E2Es, so that the window has part of the filling, or the number in the system
    changes within the window.
    """
    requests, is_open = run.requests, run.info.load == "open"
    span_s = float(requests["arrival_s"].max() - requests["arrival_s"].min())
    full = full_load(requests, run.steps, run.info.replicas) if is_growing or is_open else None
    if full is not None and (is_growing or _exceeds(len(requests["state"]) - 1, span_s, full)):
        return LastingRates(full.requests_per_s, full.output_tokens_per_s, "full load", "", True)
    if is_growing:
        needed = 4 * int(run.steps["num_running"].max()) * len(run.info.replicas)
        reason = f"overloaded, but never full for long enough; about {needed:,} requests are needed"
        return LastingRates(None, None, "", reason, True)
    rates = (steady.get("requests_per_s"), steady.get("output_tokens_per_s"))
    reason = too_short(requests) if is_open else ""
    if not reason and "start_s" in steady:
        reason = unsettled(requests, Window(steady["start_s"], steady["end_s"]))
    return LastingRates(*rates, "steady window", reason, False)


def _exceeds(num_arrivals: int, span_s: float, full: FullLoad) -> bool:
    return num_arrivals > _NOTABLE_EXCESS * full.requests_per_s * span_s


def _full_replica(steps: Columns, replica: int, service_s: float) -> tuple[Window, float] | None:
    """Output tokens a second of one replica while it is full and no longer all young."""
    mine = steps["replica"] == replica
    end_s = np.asarray(steps["end_s"][mine], dtype=np.float64)
    stretch = _full_stretch(steps, mine, end_s)
    if stretch is None:
        return None
    first, last = stretch
    begin = int(np.searchsorted(end_s, end_s[first] + service_s))
    length_s = float(end_s[last] - end_s[min(begin, last)])
    if length_s < service_s:
        return None
    # From the end of one step to that of another: whole steps only.
    emitted = int(steps["num_emitted"][mine][begin + 1 : last + 1].sum())
    return Window(float(end_s[begin]), float(end_s[last])), emitted / length_s


def _full_stretch(
    steps: Columns, mine: npt.NDArray[np.bool_], end_s: npt.NDArray[np.float64]
) -> tuple[int, int] | None:
    """The longest stretch up to the last step with waiting requests in which they nearly always
    wait, as its first and last step; None if none ever do.
    """
    waits = steps["num_waiting"][mine] > 0
    at = np.flatnonzero(waits)
    if not len(at):
        return None
    last = int(at[-1])
    # Time without waiting requests, up to the end of each step.
    without_s = np.cumsum(np.where(waits, 0.0, np.diff(end_s, prepend=end_s[0])))[: last + 1]
    length_s = end_s[last] - end_s[: last + 1]
    is_full = without_s[last] - without_s <= (1 - _WAITING_SHARE) * length_s
    return int(np.flatnonzero(waits[: last + 1] & is_full)[0]), last
