"""Earliest deadline first, the deadline being that of the first token.

Liu and Layland, "Scheduling Algorithms for Multiprogramming in a Hard-Real-Time Environment",
Journal of the ACM 20(1), 1973: if any order meets every deadline on one machine, this one does
(where work can be interrupted; here what runs is not).
"""

from collections.abc import Mapping
from math import inf

from policies.errors import PolicyError
from policies.queue_policy import Key, QueuedRequestView, QueuePolicy


class EarliestDeadlinePolicy:
    """The request whose TTFT limit is reached first goes first.

    Args:
        ttft_s: limits on TTFT in seconds, by priority. Requests of other priorities have the
            study's limit (`slo.ttft_s`), or none and then go last.

    Raises:
        PolicyError: a limit is not a positive number, or a priority not a whole one.
    """

    def __init__(self, ttft_s: Mapping[int | str, float] | None = None) -> None:
        if not isinstance(ttft_s, Mapping | None):
            raise PolicyError(f"ttft_s is {ttft_s!r}; it must map priorities to seconds")
        self._ttft_s = {_priority(key): limit_s for key, limit_s in (ttft_s or {}).items()}
        for priority, limit_s in self._ttft_s.items():
            if type(limit_s) not in (int, float) or not 0 < limit_s < inf:
                raise PolicyError(f"ttft_s: {limit_s!r} for priority {priority} must be above 0")

    def key(self, request: QueuedRequestView) -> Key:
        """The deadline, in seconds from the trace's zero."""
        limit_s = self._ttft_s.get(request.priority)
        return (request.deadline_s if limit_s is None else request.arrival_s + limit_s,)


def _priority(key: int | str) -> int:
    """A priority given as a number, or as text where keys can't be numbers."""
    try:
        if isinstance(key, int | str) and not isinstance(key, bool):
            return int(key)
    except ValueError:
        pass
    raise PolicyError(f"ttft_s: priority {key!r} must be a whole number")


def build(ttft_s: Mapping[int | str, float] | None = None) -> QueuePolicy:
    """Make the policy."""
    return EarliestDeadlinePolicy(ttft_s)
