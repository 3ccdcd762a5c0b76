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


class WallClock:
    """The time on the wall: waiting sleeps, and other processes on the core slow the work down."""

    def __init__(self) -> None:
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
    memory. Good for work on one thread of the CPU only.
    """

    def __init__(self) -> None:
        self._skipped_s = -time.thread_time()

    def now_s(self) -> float:
        """Return the CPU time since the clock was made, plus the waits."""
        return time.thread_time() + self._skipped_s

    def leave_out(self, seconds: float) -> None:
        """Forget time that was spent on something else."""
        self._skipped_s -= seconds

    def wait_until(self, at_s: float) -> None:
        """Go there at once."""
        self._skipped_s += max(at_s - self.now_s(), 0.0)
