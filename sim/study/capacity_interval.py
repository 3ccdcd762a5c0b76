"""Where the answer of a capacity search lies, given its seeds and the errors of its profile.

A rate: both sources act on its logarithm. Seeds are independent answers, so their mean has the
error s / sqrt(n). A profile of the ensemble is one way in which all step times are wrong together,
so its whole spread counts, about the study's own answer with the same seed. Each has Student's
factor for its own number, and the two reaches add as squares: never less than either.

A count of replicas is too coarse for a spread: the interval is the range of all that were found.
"""

import math
from collections.abc import Sequence

import numpy as np

from sim.study.capacity import Found
from sim.study.intervals import Interval, t_factor


def rate_interval(
    seeds: Sequence[Found], members: Sequence[Found] = (), confidence: float = 0.95
) -> Interval | None:
    """The geometric mean of the seeds' rates and its interval; None if neither source says
    anything.

    `members` are searches with profiles of the ensemble, each with the seed of one of `seeds`.
    Seeds that give the same trace are one observation, not many. Where a member meets the limits
    at no rate the interval begins at 0.
    """
    by_trace = {found.trace_sha256: found.value for found in seeds if found.value is not None}
    logs = np.log(list(by_trace.values()))
    reaches = []
    if len(logs) > 1:
        error = float(logs.std(ddof=1)) / math.sqrt(len(logs))
        reaches.append(t_factor(confidence, len(logs) - 1) * error)
    shifts = _shifts(seeds, members)
    if shifts:
        spread = math.sqrt(float(np.mean(np.square(shifts))))
        reaches.append(t_factor(confidence, len(shifts)) * spread)
    if not reaches or not len(logs):
        return None
    middle = float(logs.mean())
    reach = math.hypot(*reaches)
    is_none_met = any(member.value is None for member in members)
    low = 0.0 if is_none_met else math.exp(middle - reach)
    return Interval(math.exp(middle), low, math.exp(middle + reach), confidence)


def count_range(seeds: Sequence[Found], members: Sequence[Found]) -> tuple[float, float]:
    """The fewest and the most replicas that were found; infinite where no count was enough."""
    counts = [math.inf if f.value is None else f.value for f in (*seeds, *members)]
    return min(counts), max(counts)


def range_chance(num_draws: int) -> float:
    """How likely the range of so many independent draws is to hold one more: (n - 1) / (n + 1)."""
    return (num_draws - 1) / (num_draws + 1)


def _shifts(seeds: Sequence[Found], members: Sequence[Found]) -> list[float]:
    """Changes of the logarithm from the study's own answer with the same seed."""
    own = {found.search.seed: _middle(found) for found in seeds}
    pairs = [(own.get(member.search.seed), _middle(member)) for member in members]
    return [math.log(new / old) for old, new in pairs if old is not None and new is not None]


def _middle(found: Found) -> float | None:
    """The middle of the last bracket: less rough than its end."""
    if found.value is None:
        return None
    return found.value if found.next_bad is None else math.sqrt(found.value * found.next_bad)
