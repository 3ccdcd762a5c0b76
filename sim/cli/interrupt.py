"""Ctrl-C as a flag, for work that ends with what it has so far; other requests to end count too."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_ONE_WISH_S = 0.3  # signals so close are one: wrappers send a second one after the first
_OTHERS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


def hear_others_as_ctrl_c() -> None:
    """Let what asks a process to end (a batch system, a closed terminal) end it as Ctrl-C does."""
    for number in _heard(_OTHERS):
        signal.signal(number, signal.default_int_handler)


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

    before = {number: signal.signal(number, note) for number in _heard([signal.SIGINT, *_OTHERS])}
    try:
        yield lambda: first_s is not None
    finally:
        restore()


def _heard(numbers: list[signal.Signals]) -> list[signal.Signals]:
    """Those that the process was not started to ignore, as `nohup` does."""
    return [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
