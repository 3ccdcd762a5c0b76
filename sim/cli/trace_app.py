"""The commands about traces and measured results: their options."""

from pathlib import Path
from typing import Annotated

import typer

FileArgument = Annotated[
    str,
    typer.Argument(help="Trace file (.gz, .zst too), or a quoted pattern like 'day-*.csv'."),
]
FormatOption = Annotated[str, typer.Option(help="Format of the file; default: from its content.")]
UnitOption = Annotated[
    str | None, typer.Option(help="Unit of its times: s, ms, us or ns; default: the format's.")
]
BlockOption = Annotated[
    int | None, typer.Option(help="Tokens a hash id stands for; default: what fits the lengths.")
]
BadRowOption = Annotated[
    str, typer.Option(help="error: stop at the first wrong row. skip: leave out, and count.")
]
OverwriteOption = Annotated[bool, typer.Option("--overwrite", help="Replace the output file.")]

trace_app = typer.Typer(
    help="Look into trace files, convert and make them, or write what a run sent as one.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


def add_trace_commands(app: typer.Typer) -> None:
    """Put the commands of this module on the command line."""
    app.add_typer(trace_app, name="trace")
    app.command("compare-measured")(compare_measured)


@trace_app.command()
def info(
    file: FileArgument,
    format: FormatOption = "auto",
    time_unit: UnitOption = None,
    block_size: BlockOption = None,
    on_bad_row: BadRowOption = "error",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, not a table.")] = False,
    plot: Annotated[
        Path | None, typer.Option(help="Draw rate, lengths and prefix hits into this PNG.")
    ] = None,
) -> None:
    """Say what is in a trace: counts, rates, lengths, ideal prefix hits, sessions."""
    from sim.cli.trace_command import FileOptions, show_info

    options = FileOptions(format, time_unit, block_size, on_bad_row)
    raise typer.Exit(show_info(file, options, as_json=as_json, plot=plot))


@trace_app.command()
def convert(
    file: FileArgument,
    out: Annotated[Path, typer.Argument(help="File to write.")],
    to: Annotated[
        str | None, typer.Option(help="Format to write; default: Headway's own of the suffix.")
    ] = None,
    allow_loss: Annotated[
        bool, typer.Option("--allow-loss", help="Write although something is lost, and name it.")
    ] = False,
    format: FormatOption = "auto",
    time_unit: UnitOption = None,
    block_size: BlockOption = None,
    on_bad_row: BadRowOption = "error",
    overwrite: OverwriteOption = False,
) -> None:
    """Write a trace in another format; refuses what would be lost."""
    from sim.cli.trace_command import FileOptions, SaveOptions, convert_file

    options = FileOptions(format, time_unit, block_size, on_bad_row)
    raise typer.Exit(convert_file(file, options, out, SaveOptions(to, allow_loss, overwrite)))


@trace_app.command()
def generate(
    study: Annotated[Path, typer.Argument(help="Study file, or one with a trace section alone.")],
    out: Annotated[Path, typer.Argument(help="File to write.")],
    seed: Annotated[int | None, typer.Option(help="Seed; default: the file's, or 0.")] = None,
    to: Annotated[
        str | None, typer.Option(help="Format to write; default: Headway's own of the suffix.")
    ] = None,
    allow_loss: Annotated[
        bool, typer.Option("--allow-loss", help="Write although something is lost, and name it.")
    ] = False,
    overwrite: OverwriteOption = False,
) -> None:
    """Write the trace that a study's trace section makes: generated, mixed, transformed."""
    from sim.cli.trace_command import SaveOptions, generate_file

    options = SaveOptions(to, allow_loss, overwrite)
    raise typer.Exit(generate_file(study, seed, out, options))


@trace_app.command()
def export(
    folder: Annotated[Path, typer.Argument(help="Run folder.")],
    out: Annotated[Path, typer.Argument(help="File to write.")],
    to: Annotated[
        str | None, typer.Option(help="Format to write; default: Headway's own of the suffix.")
    ] = None,
    allow_loss: Annotated[
        bool, typer.Option("--allow-loss", help="Write although something is lost, and name it.")
    ] = False,
    overwrite: OverwriteOption = False,
) -> None:
    """Write what a run sent, when, as a trace; an open run of it is the same run."""
    from sim.cli.trace_command import SaveOptions, export_file

    raise typer.Exit(export_file(folder, out, SaveOptions(to, allow_loss, overwrite)))


def compare_measured(
    folder: Annotated[Path, typer.Argument(help="Run folder of the simulation.")],
    result: Annotated[
        Path,
        typer.Argument(help="vllm bench serve, aiperf, guidellm or LLMServingSim result file."),
    ],
    benchmark: Annotated[
        int | None, typer.Option(help="Which benchmark of a guidellm file, from 0.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="PNG of the CDFs; default: DIR/plots/measured.png.")
    ] = None,
    no_plot: Annotated[bool, typer.Option("--no-plot", help="Draw nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, not a table.")] = False,
) -> None:
    """Put a measured result beside a run: errors by metric, definitions matched."""
    from sim.cli.trace_command import show_overlay

    place = None if no_plot else plot or folder / "plots" / "measured.png"
    raise typer.Exit(show_overlay(folder, result, benchmark, plot=place, as_json=as_json))
