"""`headway report` and `headway timeline`."""

from pathlib import Path

import typer

from sim import result as run_folder
from sim.study.point_store import write_atomically


def write_report(folder: Path, out: Path | None) -> int:
    """Write the page and say where it is."""
    from sim.report import write_report as write_page

    typer.echo(f"report: {write_page(folder, out)}")
    return 0


def write_timeline(
    folder: Path, out: Path | None, start_s: float, end_s: float | None, max_events: int
) -> int:
    """Write the trace; say on stderr where the size limit cut it."""
    from sim.timeline import make_timeline, timeline_text

    run = run_folder.load(folder)
    timeline = make_timeline(run, start_s, end_s, max_events)
    target = out or folder / "timeline.json"
    write_atomically(target, timeline_text(timeline).encode())
    typer.echo(f"timeline: {target}, {timeline.num_events:,} events to {timeline.end_s:.6g} s")
    if timeline.is_cut:
        typer.echo(
            f"headway: cut at {timeline.end_s:.6g} s of {timeline.wanted_end_s:.6g} s by the limit "
            f"of {max_events:,} events; --from and --to choose a window, --max-events the limit",
            err=True,
        )
    return 0
