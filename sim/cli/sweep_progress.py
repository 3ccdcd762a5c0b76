"""How far a sweep is, on stderr: a bar on a terminal, else a line now and then."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer

from sim.study.sweep import SweepProgress
from sim.wording import number_of

_LINE_EVERY_S = 5.0

OnSweep = Callable[[SweepProgress], None]


class Pace:
    """Seconds left, from the points that ended after the first one did.

    What came before the first one's end says little: workers start, and several points are half
    done. Points kept from before took no time and say nothing.
    """

    def __init__(self) -> None:
        self._first: tuple[int, float] | None = None

    def remaining_s(self, progress: SweepProgress, elapsed_s: float) -> float | None:
        """Seconds left at this pace; None until two points have run."""
        if progress.num_done == progress.num_kept:
            return None
        if self._first is None:
            self._first = (progress.num_done, elapsed_s)
        num_first, first_s = self._first
        if progress.num_done == num_first:
            return None
        pace_s = (elapsed_s - first_s) / (progress.num_done - num_first)
        return pace_s * (progress.num_total - progress.num_done)


def progress_text(progress: SweepProgress, left_s: float | None) -> str:
    """One line: done, kept, failed, time left."""
    parts = [f"{progress.num_done:,} of {number_of(progress.num_total, 'point')}"]
    if progress.num_kept:
        parts.append(f"{progress.num_kept:,} kept from before")
    if progress.num_failed:
        parts.append(f"{progress.num_failed:,} failed")
    if left_s is not None and progress.num_done < progress.num_total:
        parts.append(f"about {clock(left_s)} left")
    return ", ".join(parts)


def clock(seconds: float) -> str:
    """Minutes and seconds, with hours where there are any."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


@contextmanager
def watched_sweep() -> Iterator[OnSweep]:
    """A callback that shows the progress of a sweep."""
    started_s = time.perf_counter()

    def elapsed_s() -> float:
        return time.perf_counter() - started_s

    show = _bar(elapsed_s) if sys.stderr.isatty() else _lines(elapsed_s)
    with show as draw:
        yield draw


@contextmanager
def _lines(elapsed_s: Callable[[], float]) -> Iterator[OnSweep]:
    next_s, pace = 0.0, Pace()

    def draw(progress: SweepProgress) -> None:
        nonlocal next_s
        now_s = elapsed_s()
        left_s = pace.remaining_s(progress, now_s)
        if now_s >= next_s or progress.num_done == progress.num_total:
            next_s = now_s + _LINE_EVERY_S
            typer.echo(progress_text(progress, left_s), err=True)

    yield draw


@contextmanager
def _bar(elapsed_s: Callable[[], float]) -> Iterator[OnSweep]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), TextColumn("{task.fields[text]}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task, pace = bar.add_task("", total=None, text=""), Pace()

        def draw(progress: SweepProgress) -> None:
            text = progress_text(progress, pace.remaining_s(progress, elapsed_s()))
            bar.update(task, completed=progress.num_done, total=progress.num_total, text=text)

        yield draw
