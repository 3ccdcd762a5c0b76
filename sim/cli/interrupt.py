"""Ctrl-C as a flag, for work that ends with what it has so far."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interrupt_flag() -> Iterator[Callable[[], bool]]:
    """Yields whether Ctrl-C was pressed; a second one ends the process at once."""
    interrupted = False

    def note(_signal: int, _frame: FrameType | None) -> None:
        nonlocal interrupted
        interrupted = True
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: interrupted
    finally:
        signal.signal(signal.SIGINT, before)
