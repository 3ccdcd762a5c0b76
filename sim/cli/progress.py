"""The progress bar on stderr: simulated time, requests done, speed."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sim.simulation import Progress


@contextmanager
def progress_bar() -> Iterator[Callable[[Progress], None] | None]:
    """A callback for `simulate` that draws a bar; None where stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.completed:,.0f} of {task.fields[total_text]} requests"),
        TextColumn("{task.fields[simulated_s]:,.0f} s simulated"),
        TextColumn("{task.fields[rate]:,.0f} requests/s"),
        TimeElapsedColumn(),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None, total_text="?", simulated_s=0.0, rate=0.0)

        def show(progress: Progress) -> None:
            elapsed_s = bar.tasks[0].elapsed or 0.0
            bar.update(
                task,
                completed=progress.num_done,
                total=progress.num_total,
                total_text=f"{progress.num_total:,}",
                simulated_s=progress.simulated_s,
                rate=progress.num_done / elapsed_s if elapsed_s else 0.0,
            )

        yield show
