"""SimPy's environment with events at absolute times, in a total order."""

from __future__ import annotations

from heapq import heappop, heappush

import simpy
from simpy.core import EmptySchedule
from simpy.events import Event

from sim.errors import SimulationError

ARRIVAL_RANK = 0
LAST_S = 1e9
"""The clock's end, 31 years: a double further on is too coarse for steps of microseconds."""


class Environment(simpy.Environment):
    """`simpy.Environment` in which something can be set for an instant, exactly.

    SimPy adds a delay to the current time, which rounds: a request sent at
    `now + (arrival - now)` need not arrive at `arrival`. Here the instant itself is the key.

    Events of one instant happen in the order of their rank: arrivals (rank 0) first, so that a
    step that begins at the very instant of an arrival sees it, then the replicas by id. `rank` is
    the highest that had its turn at this instant. So what happens at one instant does not depend
    on when its events were set.
    """

    rank = ARRIVAL_RANK

    def at(self, at_s: float, rank: int) -> Event:
        """An event that happens at `at_s` (>= now): to be yielded, or given callbacks.

        Raises `ValueError` for an instant that is past.
        """
        if at_s < self._now:
            raise ValueError(f"{at_s} s is past: it is {self._now} s")
        return self._set(Event(self), at_s, rank)

    def trigger(self, event: Event, rank: int) -> None:
        """Let an event that somebody waits for happen at this instant."""
        self._set(event, self._now, rank)

    def step(self) -> None:
        """Let the next event happen.

        Raises `EmptySchedule` if there is none, `SimulationError` if it lies beyond `LAST_S`.
        """
        try:
            now, rank, _, event = heappop(self._queue)
        except IndexError:
            raise EmptySchedule from None
        if now > LAST_S:
            raise SimulationError(
                f"the next event is at {now:g} s, beyond {LAST_S:g} s (31 years) of simulated "
                "time, where the clock is too coarse for step times; shorten arrivals, delays or "
                "steps, or set until_s"
            )
        # An arrival set by a replica's turn comes after it, whatever its rank.
        self.rank = max(rank, self.rank) if now == self._now else rank
        self._now = now
        callbacks, event.callbacks = event.callbacks, None  # type: ignore[assignment]
        for callback in callbacks:
            callback(event)
        if not event._ok and not hasattr(event, "_defused"):
            raise event._value

    def _set(self, event: Event, at_s: float, rank: int) -> Event:
        event._ok = True
        event._value = None
        # What simpy.Environment.schedule does, with the instant in place of now + delay.
        heappush(self._queue, (at_s, rank, next(self._eid), event))  # type: ignore[misc]
        return event
