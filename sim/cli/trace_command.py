"""`headway trace` and `headway compare-measured`: what they do and print."""

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import typer

import traces
from sim.wording import number_of
from traces import Reading, Trace, TraceInfo

_TABLE_WIDTH = 110  # where stdout is no terminal
_ROWS_A_WORD = 1_000_000


@dataclass(frozen=True, slots=True)
class FileOptions:
    """How a file is to be read."""

    format: str = "auto"
    time_unit: str | None = None
    block_size: int | None = None
    on_bad_row: str = "error"

    def open(self, file: str) -> Reading:
        """The file, opened and guessed at."""
        return traces.open_trace(
            file,
            self.format,
            time_unit=self.time_unit,
            block_size=self.block_size,
            on_bad_row=cast(Any, self.on_bad_row),
        )

    def load(self, file: str) -> Trace:
        """The whole trace in memory; what was guessed and is worth knowing goes to stderr."""
        trace = traces.load(
            file,
            self.format,
            time_unit=self.time_unit,
            block_size=self.block_size,
            on_bad_row=cast(Any, self.on_bad_row),
        )
        say_reading(trace)
        return trace


@dataclass(frozen=True, slots=True)
class SaveOptions:
    """How a file is to be written."""

    to: str | None = None
    allow_loss: bool = False
    overwrite: bool = False

    def check(self, out: Path) -> None:
        """Refuse a place that can't be written to, before any work is done for it."""
        traces.check_target(out, overwrite=self.overwrite, format=self.to)

    def save(self, trace: Trace, out: Path) -> None:
        """Write a trace and say so."""
        lost = traces.save(
            trace, out, overwrite=self.overwrite, format=self.to, allow_loss=self.allow_loss
        )
        if lost:
            typer.echo(f"headway: lost: {', '.join(lost)}", err=True)
        typer.echo(f"{number_of(len(trace), 'request')} over {trace.duration_s:,.6g} s: {out}")


def say_reading(trace: Trace) -> None:
    """One line on stderr for how a file was read, and one for each thing to know of it."""
    source = trace.source
    if source.reading is not None:
        typer.echo(f"headway: {source.reading}", err=True)
    for reason, count in source.dropped.items():
        typer.echo(f"headway: {number_of(count, 'row')} dropped: {reason}", err=True)
    for warning in source.warnings:
        typer.echo(f"headway: {warning}", err=True)


def show_info(file: str, options: FileOptions, *, as_json: bool, plot: Path | None) -> int:
    """Print what is in a trace file, and return the exit code."""
    reading = options.open(file)
    typer.echo(f"headway: {reading.describe()}", err=True)
    found = traces.trace_info(reading, lambda: options.open(file), _progress())
    if as_json:
        typer.echo(json.dumps(found.to_dict(), indent=2, ensure_ascii=False))
    else:
        _print_table(info_rows(found), found.warnings())
    if plot is not None:
        from sim.plots.trace_plots import save_trace_plot

        save_trace_plot(found, plot)
        typer.echo(f"plot: {plot}", err=True)
    return 0


def convert_file(file: str, reading: FileOptions, out: Path, saving: SaveOptions) -> int:
    """Write a trace in another format."""
    saving.check(out)
    saving.save(reading.load(file), out)
    return 0


def generate_file(study: Path, seed: int | None, out: Path, saving: SaveOptions) -> int:
    """Write the trace of a study's trace section."""
    from sim.trace_export import trace_of_study

    saving.check(out)
    saving.save(trace_of_study(study, seed), out)
    return 0


def export_file(folder: Path, out: Path, saving: SaveOptions) -> int:
    """Write what a run sent as a trace."""
    from sim.trace_export import export_run

    saving.check(out)
    exported = export_run(folder)
    for note in exported.notes:
        typer.echo(f"headway: {note}", err=True)
    saving.save(exported.trace, out)
    return 0


def show_overlay(
    folder: Path, result: Path, benchmark: int | None, *, plot: Path | None, as_json: bool
) -> int:
    """Print a measured result beside a run, and return the exit code."""
    from sim import result as run_folder
    from sim.overlay import overlay

    found = overlay(run_folder.load(folder), traces.load_measured(result, benchmark))
    if as_json:
        typer.echo(json.dumps(found.to_dict(), indent=2, ensure_ascii=False))
    else:
        _print_overlay(found.to_dict())
    if plot is not None:
        from sim.plots.overlay_plots import save_overlay_plot

        plot.parent.mkdir(parents=True, exist_ok=True)
        save_overlay_plot(found, plot)
        typer.echo(f"plot: {plot}", err=True)
    return 0


def info_rows(found: TraceInfo) -> list[tuple[str, str]]:
    """The table of a trace, as names and values."""
    facts = found.to_dict()
    rows = [
        ("file", facts["file"]),
        ("read as", found.reading.describe().split(": read as ", 1)[1]),
        ("rows", f"{facts['rows']:,}"),
        ("requests", f"{facts['requests']:,}"),
        *((f"  dropped, {reason}", f"{count:,}") for reason, count in facts["dropped"].items()),
        ("span", f"{facts['span_s']:,.6g} s"),
        ("mean rate", _per_s(facts["rate_per_s"])),
        ("peak minute", _peak(facts["peak_minute_per_s"])),
        ("CV of the gaps", _or_dash(facts["gap_cv"])),
        ("prompt tokens", _lengths(facts["prompt_tokens"])),
        ("output tokens", _lengths(facts["output_tokens"])),
    ]
    if facts["sessions"] or facts["follow_up_requests"]:
        rows.append(("sessions", f"{facts['sessions']:,}"))
        rows.append(("  follow-up requests", f"{facts['follow_up_requests']:,}"))
        rows.append(("  with a think time", f"{facts['recorded_think_times']:,}"))
    if facts["tenants"]:
        rows.append(("tenants", f"{facts['tenants']:,}"))
    return rows + _prefix_rows(facts["prefix"])


def _prefix_rows(prefix: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    if prefix is None:
        return [("ideal prefix hits", "none: no prompt says what it shares")]
    rows = []
    for pool in prefix["pools"]:
        tokens = pool["pool_tokens"]
        name = "unbounded pool" if tokens is None else f"pool of {tokens:,} tokens"
        share = f"{pool['hit_share_of_prompt_tokens']:.1%} of prompt tokens"
        rows.append((f"  {name}", f"{share}, {pool['hit_share_of_blocks']:.1%} of blocks"))
    return [("ideal prefix hits", f"in blocks of {prefix['block_size']} tokens"), *rows]


def _lengths(stats: Mapping[str, float]) -> str:
    names = ("mean", "p50", "p90", "p99", "max")
    return ", ".join(f"{name} {stats[name]:,.0f}" for name in names)


def _per_s(rate: float | None) -> str:
    return "all at once" if rate is None else f"{rate:,.4g} requests a second"


def _peak(rate: float | None) -> str:
    return "-, the trace is shorter" if rate is None else _per_s(rate)


def _or_dash(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _figure(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.4g}"


def _progress() -> Any:
    """Says on stderr how far a long read is, every million rows."""
    said = [0]

    def on_rows(num_rows: int) -> None:
        if num_rows // _ROWS_A_WORD > said[0]:
            said[0] = num_rows // _ROWS_A_WORD
            typer.echo(f"headway: {num_rows:,} rows read", err=True)

    return on_rows


def _print_table(rows: Iterable[tuple[str, str]], warnings: Iterable[str]) -> None:
    from rich.table import Table

    table = Table(show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, value)
    console = _console()
    console.print(table)
    for warning in warnings:
        console.print(f"warning: {warning}", style="yellow", soft_wrap=True)


def _console() -> Any:
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else _TABLE_WIDTH, highlight=False)


def _print_overlay(facts: Mapping[str, Any]) -> None:
    from rich.table import Table

    table = Table()
    table.add_column("")
    for name in ("", "measured", "simulated", "error"):
        table.add_column(name, justify="right")
    for metric, stats in facts["metrics"].items():
        for index, (stat, row) in enumerate(stats.items()):
            table.add_row(
                metric if not index else "",
                stat,
                _figure(row["measured"]),
                _figure(row["simulated"]),
                "-" if row["error"] is None else f"{row['error']:+.1%}",
                end_section=index == len(stats) - 1,
            )
    console = _console()
    console.print(f"{facts['tool']}: {facts['measured']}", soft_wrap=True)
    console.print(table)
    for note in facts["notes"]:
        console.print(f"note: {note}", soft_wrap=True)
