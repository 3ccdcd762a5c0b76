"""Ctrl-C as a flag, for work that ends with what it has so far; other requests to end count too."""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_ONE_WISH_S = 0.3  # signals so close are one: wrappers send a second one after the first
_ALL = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


def hear_others_as_ctrl_c() -> None:
    """Let what asks a process to end (a batch system, a closed terminal) end it as Ctrl-C does.

    What comes hardly later than the first is the same wish, and does not disturb its cleaning up.
    """
    last_s: float | None = None

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal last_s
        now_s = time.monotonic()
        if last_s is None or now_s - last_s > _ONE_WISH_S:
            last_s = now_s
            signal.default_int_handler(number, frame)

    for number in _heard():
        signal.signal(number, interrupt)


def end_when_asked(code: int) -> None:
    """Let a request to end from now on end the process at once, with this exit code.

    For one whose work is done: Python raises what comes while it takes itself down in places where
    nobody can catch it, and prints it as ignored.
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # none, gone or closed
            stream.flush()
    for number in _heard():
        signal.signal(number, lambda _number, _frame: os._exit(code))


@contextmanager
def interrupt_flag() -> Iterator[Callable[[], bool]]:
    """Yields whether Ctrl-C was pressed; a second one ends the process at once."""
    first_s: float | None = None

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal first_s
        if first_s is None:
            first_s = time.monotonic()
        elif time.monotonic() - first_s > _ONE_WISH_S:
            restore()
            signal.default_int_handler(number, frame)

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    before = {number: signal.signal(number, note) for number in _heard()}
    try:
        yield lambda: first_s is not None
    finally:
        restore()


def _heard() -> list[signal.Signals]:
    """Those that the process was not started to ignore, as `nohup` does."""
    return [number for number in _ALL if signal.getsignal(number) is not signal.SIG_IGN]
