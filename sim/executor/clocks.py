"""The clocks that the executor can live by."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Seconds since the start, and waiting."""

    def now_s(self) -> float:
        """Return the time."""
        ...

    def wait_until(self, at_s: float) -> None:
        """Return at `at_s` or after."""
        ...

    def restart(self) -> None:
        """Begin at 0 again."""
        ...


class WallClock:
    """The time on the wall: waiting sleeps, and other processes on the core slow the work down."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Begin at 0 again."""
        self._start_s = time.perf_counter()

    def now_s(self) -> float:
        """Return the seconds since the clock was made."""
        return time.perf_counter() - self._start_s

    def wait_until(self, at_s: float) -> None:
        """Sleep."""
        left_s = at_s - self.now_s()
        if left_s > 0:
            time.sleep(left_s)


class CpuClock:
    """CPU time of this thread: waiting is skipped, and other processes do not count.

    What the wall would show on a machine of one's own, but for what others leave in caches and
    memory: a machine that they slow down is told by `set_pace`, and then the clock slows down, too.
    Good for work on one thread of the CPU only.
    """

    def __init__(self) -> None:
        self._pace = 1.0
        self.restart()

    def restart(self) -> None:
        """Begin at 0 again, at the same pace."""
        self._since_cpu_s, self._since_s = time.thread_time(), 0.0

    def now_s(self) -> float:
        """Return the CPU time since the clock was made, each part over its pace, plus the waits."""
        return self._since_s + (time.thread_time() - self._since_cpu_s) / self._pace

    def set_pace(self, pace: float) -> None:
        """From now on work takes `pace` times as long as it should: count so much less."""
        self._since_s, self._since_cpu_s = self.now_s(), time.thread_time()
        self._pace = pace

    def leave_out(self, cpu_s: float) -> None:
        """Forget CPU time that was spent on something else."""
        self._since_cpu_s += cpu_s

    def wait_until(self, at_s: float) -> None:
        """Go there at once."""
        self._since_s += max(at_s - self.now_s(), 0.0)
