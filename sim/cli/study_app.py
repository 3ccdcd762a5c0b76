"""The commands that run many simulations, and those that show a folder: their options."""

from pathlib import Path
from typing import Annotated

import typer

StudyArgument = Annotated[Path, typer.Argument(help="Study file; may have a sweep section.")]
GridOption = Annotated[
    list[str] | None,
    typer.Option(
        "--grid",
        metavar="KEY=V1,V2,...",
        help="Values of a key, for instance engine.max_num_seqs=64,128; repeatable.",
    ),
]
SettingsOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Set a key in every run; repeatable."),
]
SeedsOption = Annotated[
    int | None, typer.Option(min=1, help="Runs of each setting, with seeds from the study's on.")
]
JobsOption = Annotated[int | None, typer.Option(help="Processes; default: one a core.")]
ExecutorOption = Annotated[str | None, typer.Option(help="joblib (default), serial, ray or dask.")]
OutOption = Annotated[Path | None, typer.Option(help="Folder for the results.")]
YesOption = Annotated[bool, typer.Option("--yes", help="Run more than 10,000 points.")]
SloOption = Annotated[
    list[str] | None,
    typer.Option(
        "--slo",
        metavar="METRIC=LIMIT",
        help="ttft_p99_s=0.5, tpot_mean_s=0.05, e2e_p90_s=10, goodput_share=0.95; repeatable.",
    ),
]


def add_study_commands(app: typer.Typer) -> None:
    """Put the commands of this module on the command line."""
    for command in (sweep, curve, compare, capacity, advise, report, timeline):
        app.command()(command)


def sweep(
    study: StudyArgument,
    grid: GridOption = None,
    settings: SettingsOption = None,
    seeds: SeedsOption = None,
    executor: ExecutorOption = None,
    jobs: JobsOption = None,
    out: OutOption = None,
    yes: YesOption = False,
) -> None:
    """Run a grid of settings; finished points are kept, a second run does only what is missing."""
    from sim.cli.sweep_command import SweepOptions, sweep_study

    options = SweepOptions(grid or [], settings or [], seeds, executor, jobs, out, yes)
    raise typer.Exit(sweep_study(study, options))


def curve(
    study: StudyArgument,
    rates: Annotated[
        str | None, typer.Option(metavar="R1,R2,...", help="Arrival rates, requests a second.")
    ] = None,
    concurrency: Annotated[
        str | None, typer.Option(metavar="N1,N2,...", help="Numbers of clients, in place of rates.")
    ] = None,
    grid: GridOption = None,
    settings: SettingsOption = None,
    seeds: SeedsOption = None,
    measured: Annotated[
        Path | None, typer.Option(help="CSV of measured points to draw beside.")
    ] = None,
    executor: ExecutorOption = None,
    jobs: JobsOption = None,
    out: OutOption = None,
    yes: YesOption = False,
) -> None:
    """Draw TTFT and TPOT against throughput as load rises, a line for each setting of the grid."""
    from sim.cli.curve_command import CurveOptions, draw_curve
    from sim.cli.sweep_command import SweepOptions

    options = SweepOptions(grid or [], settings or [], seeds, executor, jobs, out, yes)
    raise typer.Exit(draw_curve(study, options, CurveOptions(rates, concurrency, measured)))


def compare(
    a: Annotated[Path, typer.Argument(help="Study A.")],
    b: Annotated[Path | None, typer.Argument(help="Study B; or give --key.")] = None,
    key: Annotated[
        str | None,
        typer.Option(metavar="KEY=V1,V2", help="Two values of a key of A, in place of B."),
    ] = None,
    settings: SettingsOption = None,
    seeds: Annotated[int, typer.Option(min=1, help="Pairs of runs.")] = 10,
    confidence: Annotated[float, typer.Option(help="Of every interval.")] = 0.95,
    precision: Annotated[
        float, typer.Option(help="Wished half width, a share; tells the seeds that it needs.")
    ] = 0.05,
    jobs: JobsOption = None,
    out: OutOption = None,
) -> None:
    """Compare two studies on the same requests: what differs, by how much, how sure."""
    from sim.cli.compare_command import CompareOptions, compare_studies

    options = CompareOptions(
        key, settings or [], seeds, confidence, precision, -1 if jobs is None else jobs, out
    )
    raise typer.Exit(compare_studies(a, b, options))


def capacity(
    study: StudyArgument,
    find: Annotated[str, typer.Option(help="rate (default), or replicas.")] = "rate",
    slo: SloOption = None,
    tolerance: Annotated[float, typer.Option(help="How exactly, as a share of the rate.")] = 0.02,
    most_replicas: Annotated[int, typer.Option(min=1, help="Replicas to try at most.")] = 64,
    start: Annotated[
        float | None, typer.Option(help="First probe: a rate, or a scale of the trace's own.")
    ] = None,
    step_time_error: Annotated[
        float | None, typer.Option(help="Error of step times, a share: answers with both ends.")
    ] = None,
    profile_members: Annotated[
        int,
        typer.Option(
            min=0, help="Searches with a measured profile's own errors, for the interval; 0: none."
        ),
    ] = 8,
    price: Annotated[
        list[str] | None,
        typer.Option(metavar="GPU=DOLLARS", help="Price of a GPU for an hour; repeatable."),
    ] = None,
    accept_short: Annotated[
        bool, typer.Option("--accept-short", help="Answer though the trace is too short.")
    ] = False,
    grid: GridOption = None,
    settings: SettingsOption = None,
    seeds: SeedsOption = None,
    executor: ExecutorOption = None,
    jobs: JobsOption = None,
    out: OutOption = None,
    yes: YesOption = False,
) -> None:
    """Find the largest rate that meets limits, or the fewest replicas that do."""
    from sim.cli.capacity_command import find_capacity
    from sim.cli.sweep_command import SweepOptions
    from sim.study.capacity_run import Question

    options = SweepOptions(grid or [], settings or [], seeds, executor, jobs, out, yes)
    question = Question(
        find,
        slo or [],
        tolerance,
        most_replicas,
        start,
        step_time_error,
        profile_members,
        accept_short,
    )
    raise typer.Exit(find_capacity(study, options, question, price or []))


def advise(
    study: StudyArgument,
    latency: Annotated[str, typer.Option(help="Latency to weigh against cost.")] = "ttft_p99_s",
    price: Annotated[
        list[str] | None,
        typer.Option(metavar="GPU=DOLLARS", help="Price of a GPU for an hour; repeatable."),
    ] = None,
    grid: GridOption = None,
    settings: SettingsOption = None,
    seeds: SeedsOption = None,
    executor: ExecutorOption = None,
    jobs: JobsOption = None,
    out: OutOption = None,
    yes: YesOption = False,
) -> None:
    """Name the settings of a grid that none beats in both cost and latency, and why.

    Settings in which fewer than 95 % of requests meet the study's slo, if it has one, are left out.
    """
    from sim.cli.advise_command import advise_on
    from sim.cli.sweep_command import SweepOptions

    options = SweepOptions(grid or [], settings or [], seeds, executor, jobs, out, yes)
    raise typer.Exit(advise_on(study, options, latency, price or []))


def report(
    folder: Annotated[
        Path, typer.Argument(help="Folder of a run, sweep, curve, advice, comparison or capacity.")
    ],
    out: Annotated[Path | None, typer.Option(help="HTML file; default: DIR/report.html.")] = None,
) -> None:
    """Write one self-contained HTML page about a folder."""
    from sim.cli.folder_commands import write_report

    raise typer.Exit(write_report(folder, out))


def timeline(
    folder: Annotated[Path, typer.Argument(help="Run folder.")],
    out: Annotated[Path | None, typer.Option(help="Default: DIR/timeline.json.")] = None,
    start_s: Annotated[float, typer.Option("--from", help="Simulated second to begin at.")] = 0.0,
    end_s: Annotated[float | None, typer.Option("--to", help="Simulated second to end at.")] = None,
    max_events: Annotated[int, typer.Option(min=1, help="Size limit.")] = 200_000,
) -> None:
    """Write what every replica and request did, for Perfetto or chrome://tracing."""
    from sim.cli.folder_commands import write_timeline

    raise typer.Exit(write_timeline(folder, out, start_s, end_s, max_events))
