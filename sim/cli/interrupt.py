"""Ctrl-C as a flag, for work that ends with what it has so far; SIGTERM is heard as Ctrl-C."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def hear_sigterm_as_ctrl_c() -> None:
    """Let what asks a process to end (a batch system, `timeout`) end it as Ctrl-C does."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


@contextmanager
def interrupt_flag() -> Iterator[Callable[[], bool]]:
    """Yields whether Ctrl-C was pressed; a second one ends the process at once."""
    interrupted = False

    def note(_signal: int, _frame: FrameType | None) -> None:
        nonlocal interrupted
        interrupted = True
        restore()

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    before = {number: signal.signal(number, note) for number in _SIGNALS}
    try:
        yield lambda: interrupted
    finally:
        restore()
