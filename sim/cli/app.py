"""The command line: its commands and options, and how errors become exit codes."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from sim.cli.interrupt import end_when_asked, hear_others_as_ctrl_c
from sim.cli.measured_app import add_measured_commands
from sim.cli.study_app import add_study_commands
from sim.cli.trace_app import add_trace_commands

EXIT_FAILED, EXIT_BAD_INPUT, EXIT_INTERRUPTED = 1, 2, 130


class _Commands(TyperGroup):
    """Typer ends an interrupted command without a word."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise typer.Abort from None


app = typer.Typer(
    cls=_Commands,
    help="Headway simulates a cluster of LLM replicas under recorded or made-up load.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
conformance_app = typer.Typer(
    help="Compare the scheduler's decisions with recorded ones.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(conformance_app, name="conformance")
add_study_commands(app)


add_measured_commands(app)
add_trace_commands(app)


def main() -> None:
    """Run the command line and end the process with its exit code."""
    hear_others_as_ctrl_c()
    try:
        code = run_app(sys.argv[1:])
    except KeyboardInterrupt:  # one more, while the first was being answered
        code = EXIT_INTERRUPTED
    end_when_asked(code)
    sys.exit(code)


def run_app(arguments: list[str]) -> int:
    """Run the command line and return its exit code; errors of the user are one line on stderr."""
    try:
        code = app(args=arguments, prog_name="headway", standalone_mode=False)
    except (typer.Abort, KeyboardInterrupt):
        return _fail("interrupted; what was not saved by then is lost", EXIT_INTERRUPTED)
    except BrokenPipeError:  # the reader of our output has gone: not worth a word
        sys.stdout = None
        return EXIT_FAILED
    except Exception as error:
        known = _known_failure(error)
        if known is None:
            raise
        return _fail(*known)
    return code if isinstance(code, int) else 0


def _known_failure(error: Exception) -> tuple[str, int] | None:
    """The line and the exit code for an error that is the user's to mend; None for a bug."""
    from calibration import CalibrationError, InterruptedCalibrationError
    from policies import PolicyError
    from sim.errors import ResultError, SimulationError, StudyError
    from traces import TraceError

    if isinstance(error, InterruptedCalibrationError):
        return str(error), EXIT_INTERRUPTED
    if isinstance(error, (StudyError, ResultError, TraceError, CalibrationError, PolicyError)):
        return str(error), EXIT_BAD_INPUT
    if isinstance(error, SimulationError):
        return str(error), EXIT_FAILED
    format_message = getattr(error, "format_message", None)  # click's errors of usage
    return (format_message(), EXIT_BAD_INPUT) if format_message else None


def _fail(message: str, code: int) -> int:
    is_help = message.startswith("Usage:")  # a group of commands without a command
    typer.echo(message if is_help else "headway: " + " ".join(message.split()), err=True)
    return code


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"headway {version('headway')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    pass


@app.command()
def run(
    study: Annotated[
        Path | None, typer.Argument(help="Study file; without one, the shipped sample study.")
    ] = None,
    trace: Annotated[Path | None, typer.Option(help="Trace file, in place of the study's.")] = None,
    model: Annotated[
        str | None, typer.Option(help="Model name, or path of a config.json or its folder.")
    ] = None,
    hardware: Annotated[str | None, typer.Option(help="GPU name, for instance h100.")] = None,
    replicas: Annotated[int | None, typer.Option(help="Number of replicas.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of every random stream.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Set any key of the study, for instance engine.max_num_seqs=64; repeatable.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Run folder; default: a new one, runs/NAME.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the run folder given by --out.")
    ] = False,
    no_plots: Annotated[bool, typer.Option("--no-plots", help="Draw no plots.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the summary as JSON in place of the table.")
    ] = False,
    intervals: Annotated[
        bool,
        typer.Option(
            "--intervals", help="Add intervals from the measured profile's own uncertainty."
        ),
    ] = False,
) -> None:
    """Run a study: results to stdout and to a run folder, progress to stderr."""
    from sim.cli.run_command import RunOptions, run_study

    flags = {
        "trace.path": trace and str(trace),
        "model": model,
        "hardware": hardware,
        "replicas": replicas,
        "seed": seed,
    }
    options = RunOptions(
        out=out,
        overwrite=overwrite,
        plots=not no_plots,
        as_json=as_json,
        intervals=intervals,
    )
    raise typer.Exit(run_study(study, flags, settings or [], options))


@app.command()
def check(
    folder: Annotated[Path, typer.Argument(help="Run folder.")],
) -> None:
    """Check the invariants of a run; exit 1 if one does not hold."""
    from sim.cli.check_command import check_folder

    raise typer.Exit(check_folder(folder))


@app.command()
def explain(
    folder: Annotated[Path, typer.Argument(help="Run folder of a run with engine.explain: true.")],
    request: Annotated[int, typer.Argument(min=0, help="Its number in the trace.")],
) -> None:
    """Say where the time of one request went: what it waited for, and what was computed."""
    from sim.cli.explain_command import explain_request

    raise typer.Exit(explain_request(folder, request))


@conformance_app.command()
def replay(
    file: Annotated[Path, typer.Argument(help="Cases, one JSON object a line; .gz is read too.")],
    emit: Annotated[
        Path | None, typer.Option(help="Write the cases here with our scheduler's steps.")
    ] = None,
) -> None:
    """Replay recorded cases on our scheduler; exit 1 if a decision differs."""
    from sim.cli.conformance_command import replay_cases

    raise typer.Exit(replay_cases(file, emit))


@conformance_app.command()
def record(
    python: Annotated[Path, typer.Option(help="A Python that has vLLM.")],
    out: Annotated[Path, typer.Option(help="Cases to write; .gz is compressed.")],
    family: Annotated[list[str] | None, typer.Option(help="Again for more; all if none.")] = None,
    count: Annotated[int, typer.Option(min=1, help="Cases of each family.")] = 20,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    workloads: Annotated[
        Path | None, typer.Option(help="Take the workloads from this file of cases instead.")
    ] = None,
    scheduler: Annotated[str, typer.Option(help="vllm, or a class as module:Class.")] = "vllm",
) -> None:
    """Have an installed vLLM decide random workloads; exit 1 if it failed on one."""
    from sim.cli.conformance_command import record_again, record_cases

    if workloads is not None:
        raise typer.Exit(record_again(python, out, workloads, scheduler))
    raise typer.Exit(record_cases(python, out, family or [], count, seed, scheduler))


@conformance_app.command()
def shrink(
    file: Annotated[Path, typer.Argument(help="Recorded cases.")],
    python: Annotated[Path, typer.Option(help="A Python that has vLLM.")],
    out: Annotated[Path, typer.Option(help="Small cases to write; .gz is compressed.")],
    scheduler: Annotated[str, typer.Option(help="vllm, or a class as module:Class.")] = "vllm",
) -> None:
    """Make every case that our scheduler decides differently small; exit 1 if there is one."""
    from sim.cli.conformance_command import shrink_differing

    raise typer.Exit(shrink_differing(python, file, out, scheduler))
