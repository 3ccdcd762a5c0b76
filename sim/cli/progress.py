"""The progress bar on stderr, and Ctrl-C that ends a run with what it has so far."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sim.cli.interrupt import interrupt_flag
from sim.simulation import Progress
from sim.wording import number_of

_REDRAW_S = 0.1

OnProgress = Callable[[Progress], bool]
"""Called often; False asks `simulate` to stop and hand over partial results."""


@contextmanager
def watched_run() -> Iterator[OnProgress]:
    """A callback for `simulate` that draws the bar (on a terminal) and heeds Ctrl-C.

    The first Ctrl-C stops the run at its next event; a second one ends the process at once.
    """
    with _draw_function() as draw, interrupt_flag() as is_interrupted:
        next_draw_s = 0.0

        def on_progress(progress: Progress) -> bool:
            nonlocal next_draw_s
            now_s = time.perf_counter()
            if now_s >= next_draw_s:
                next_draw_s = now_s + _REDRAW_S
                draw(progress)
            return not is_interrupted()

        yield on_progress


@contextmanager
def _draw_function() -> Iterator[Callable[[Progress], None]]:
    """Draws the bar on stderr; does nothing where that is no terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[counts]}"),
        TimeElapsedColumn(),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None, counts="")

        def draw(progress: Progress) -> None:
            counts = _counts(progress, bar.tasks[0].elapsed or 0.0)
            bar.update(task, completed=progress.num_done, total=progress.num_total, counts=counts)

        yield draw


def _counts(progress: Progress, elapsed_s: float) -> str:
    rate = progress.num_done / elapsed_s if elapsed_s else 0.0
    return (
        f"{progress.num_done:,} of {number_of(progress.num_total, 'request')}, "
        f"{progress.simulated_s:,.0f} s simulated, {rate:,.0f} requests/s"
    )
