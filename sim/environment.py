"""SimPy's environment with events at absolute times."""

from __future__ import annotations

from heapq import heappush

import simpy
from simpy.events import NORMAL, URGENT, Event


class Environment(simpy.Environment):
    """`simpy.Environment` in which something can be set for an instant, exactly.

    SimPy adds a delay to the current time, which rounds: a request sent at
    `now + (arrival - now)` need not arrive at `arrival`. Here the instant itself is the key.
    """

    def at(self, at_s: float, *, first: bool = False) -> Event:
        """An event that happens at `at_s` (>= now): to be yielded, or given callbacks.

        `first` puts it before whatever else happens at that instant. Arrivals use it, so that a
        step that begins at the very instant of an arrival sees it. Raises `ValueError` for an
        instant that is past.
        """
        if at_s < self._now:
            raise ValueError(f"{at_s} s is past: it is {self._now} s")
        event = Event(self)
        event._ok = True
        event._value = None
        # What Environment.schedule does, with the instant in place of now + delay.
        heappush(self._queue, (at_s, URGENT if first else NORMAL, next(self._eid), event))
        return event
