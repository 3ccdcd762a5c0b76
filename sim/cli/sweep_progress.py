"""How far a sweep is, on stderr: a bar on a terminal, else a line now and then."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer

from sim.study.sweep import SweepProgress

_LINE_EVERY_S = 5.0

OnSweep = Callable[[SweepProgress], None]


def remaining_s(progress: SweepProgress, elapsed_s: float) -> float | None:
    """Seconds left if the points to come take as long as those run so far; None before one has.

    Points kept from before took no time and say nothing.
    """
    num_run = progress.num_done - progress.num_kept
    if num_run == 0:
        return None
    return elapsed_s / num_run * (progress.num_total - progress.num_done)


def progress_text(progress: SweepProgress, elapsed_s: float) -> str:
    """One line: done, kept, failed, time left."""
    parts = [f"{progress.num_done:,} of {progress.num_total:,} points"]
    if progress.num_kept:
        parts.append(f"{progress.num_kept:,} kept from before")
    if progress.num_failed:
        parts.append(f"{progress.num_failed:,} failed")
    left_s = remaining_s(progress, elapsed_s)
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
    next_s = 0.0

    def draw(progress: SweepProgress) -> None:
        nonlocal next_s
        now_s = elapsed_s()
        if now_s >= next_s or progress.num_done == progress.num_total:
            next_s = now_s + _LINE_EVERY_S
            typer.echo(progress_text(progress, now_s), err=True)

    yield draw


@contextmanager
def _bar(elapsed_s: Callable[[], float]) -> Iterator[OnSweep]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), TextColumn("{task.fields[text]}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None, text="")

        def draw(progress: SweepProgress) -> None:
            text = progress_text(progress, elapsed_s())
            bar.update(task, completed=progress.num_done, total=progress.num_total, text=text)

        yield draw
