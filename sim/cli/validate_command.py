"""`headway validate silicon`."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import typer

from calibration import (
    CostModel,
    GpuSpec,
    ModelSpec,
    ProfileCost,
    UnmeasuredError,
    shipped_profile,
)
from calibration.kernels import build_profile, load_kernel_tables
from sim.errors import StudyError
from sim.plots import house_style, save_figure
from sim.plots.validation import cdf_pairs_figure, validation_figure
from sim.validate import (
    HARNESSES,
    SILICON_STUDIES,
    Comparison,
    SiliconRow,
    SiliconStudy,
    find_bench_runs,
    predict_bench_run,
    predict_row,
    read_silicon_rows,
)
from sim.validate.bench_runs import BenchComparison
from sim.validate.comparison import ErrorSummary, by_group, tpot_summary, ttft_summary
from sim.validate.harness import Harness
from sim.validate.ranking import tpot_order, ttft_order
from sim.validate.silicon_study import MakeCost
from sim.wording import number_of

_BAND = 0.1  # drawn around the diagonal
_METRICS = ("TTFT", "TPOT", "E2E")


@dataclass(frozen=True, slots=True)
class SiliconOptions:
    """Which measurements, with which kernels, and where results go."""

    data: Path
    studies: tuple[str, ...] = ()
    kernels: Path | None = None
    every: int = 1
    client_delay_s: float | None = None
    client_delay_per_prompt_token_s: float | None = None
    out: Path | None = None


def validate_silicon(options: SiliconOptions) -> int:
    """Predict every study that has data, print its errors, draw it; returns the exit code."""
    if not options.data.is_dir():
        raise StudyError(f"{options.data}: no such folder")
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
    num_done = 0
    rows = [row for file in sorted(options.data.rglob("*.csv")) for row in _rows_of(file)]
    for study in SILICON_STUDIES:
        own = [row for row in rows if study.holds(row)][:: options.every]
        if own and _is_wanted(study.name, options):
            _run_study(study, own, options)
            num_done += 1
    for folder in sorted({file.parents[2] for file in options.data.rglob("*/*/requests.jsonl")}):
        for run in find_bench_runs(folder):
            if _is_wanted(run.folder.name.lower(), options):
                _report_bench(predict_bench_run(run), options.out)
                num_done += 1
    if not num_done:
        known = ", ".join(study.name for study in SILICON_STUDIES)
        raise StudyError(f"{options.data}: has no measurements of {known}, nor recorded runs")
    return 0


def _rows_of(file: Path) -> list[SiliconRow]:
    """The rows of a file of measured rows; other tables in the folder are passed over."""
    with file.open(encoding="utf-8", errors="replace") as lines:
        is_measured = "silicon_ttft_ms" in lines.readline()
    return read_silicon_rows(file) if is_measured else []


def _is_wanted(name: str, options: SiliconOptions) -> bool:
    return not options.studies or name in options.studies


def _run_study(study: SiliconStudy, rows: Sequence[SiliconRow], options: SiliconOptions) -> None:
    harness = _harness(study, options)
    make_cost = _cost_maker(study, options.kernels)
    comparisons: list[Comparison] = []
    version = study.engine_version or "of unsaid version"
    typer.echo(f"\n{study.name}: {number_of(len(rows), 'row')}, vLLM {version}")
    for row in rows:
        try:
            comparisons.append(predict_row(study, row, make_cost, harness))
        except ValueError as error:
            typer.echo(f"row {row.row_id} left out: {error}", err=True)
    if not comparisons:
        return
    for line in study_lines(comparisons):
        typer.echo(line)
    if options.out is not None:
        _write_rows(comparisons, options.out / f"{study.name}.csv")
        _draw_study(comparisons, options.out / f"{study.name}.png")


def _harness(study: SiliconStudy, options: SiliconOptions) -> Harness:
    harness = HARNESSES[study.harness]
    if options.client_delay_s is not None:
        harness = replace(harness, client_delay_s=options.client_delay_s)
    if options.client_delay_per_prompt_token_s is not None:
        delay_s = options.client_delay_per_prompt_token_s
        harness = replace(harness, client_delay_per_prompt_token_s=delay_s)
    return harness


def _cost_maker(study: SiliconStudy, kernels: Path | None) -> MakeCost:
    """Step times of each tensor parallel size, made once."""
    tables = None if kernels is None else load_kernel_tables(kernels, study.system)

    @cache
    def make(model: ModelSpec, gpu: GpuSpec, tp: int, kv_cache_dtype: str) -> CostModel:
        if tables is not None:
            return ProfileCost(
                build_profile(tables, model, tensor_parallel_size=tp, kv_cache_dtype=kv_cache_dtype)
            )
        shipped = shipped_profile(model, gpu, tp, kv_cache_dtype)
        if shipped is None:
            raise UnmeasuredError(
                f"no profile of {model.name} on {gpu.name} with tensor parallel {tp} ships with"
                " Headway; give kernel tables with --kernels"
            )
        return shipped

    return make


def study_lines(rows: Sequence[Comparison]) -> list[str]:
    """The table of a study: all rows, each region, the order, then each saturated row."""
    header = f"{'':24}{'TPOT':^29}{'TTFT, unsaturated':^29}"
    names = f"{'':24}" + f"{'rows':>7}{'MAPE':>10}{'bias':>10}  " * 2
    lines = [header, names, _line("all", rows)]
    lines += [_line(group, own) for group, own in sorted(by_group(rows).items(), key=_group_key)]
    lines += _order_lines(rows)
    for row in rows:
        if row.is_saturated:
            lines.append(
                f"saturated: {row.name}: TTFT {row.measured_ttft_s:.1f} s measured,"
                f" {row.predicted_ttft_s:.1f} s predicted ({row.ttft_error:+.1%});"
                f" TPOT {row.tpot_error:+.1%}"
            )
    return lines


def _order_lines(rows: Sequence[Comparison]) -> list[str]:
    """Whether configurations come in the measured order, whatever the errors are."""
    return [
        f"order of {name}: rank correlation {order.spearman:.3f}; of {order.num_pairs:,} pairs of"
        f" rows with the same lengths {order.pairs_in_order / order.num_pairs:.1%} as measured"
        for name, order in (("TPOT", tpot_order(rows)), ("TTFT", ttft_order(rows)))
        if order is not None and order.num_pairs
    ]


def _group_key(item: tuple[str, list[Comparison]]) -> tuple[str, int]:
    words = item[0].split()
    number = next(int(word) for word in words if word.isdigit())
    return (" ".join(word for word in words if not word.isdigit()), number)


def _line(label: str, rows: Sequence[Comparison]) -> str:
    return f"{label:24}{_cells(tpot_summary(label, rows))}  {_cells(ttft_summary(label, rows))}"


def _cells(summary: ErrorSummary | None) -> str:
    if summary is None:
        return f"{0:>7}{'-':>10}{'-':>10}"
    return f"{summary.num_rows:>7}{summary.mape:>10.1%}{summary.bias:>+10.1%}"


def _write_rows(rows: Sequence[Comparison], file: Path) -> None:
    names = (
        "name",
        "measured_ttft_s",
        "predicted_ttft_s",
        "measured_tpot_s",
        "predicted_tpot_s",
        "is_saturated",
    )
    with file.open("w", encoding="utf-8", newline="") as lines:
        writer = csv.writer(lines)
        writer.writerow(names)
        writer.writerows([getattr(row, name) for name in names] for row in rows)


def _draw_study(rows: Sequence[Comparison], file: Path) -> None:
    regions = [row.groups[0] for row in rows]
    panels = [
        (
            "TPOT (s)",
            np.array([row.measured_tpot_s for row in rows]),
            np.array([row.predicted_tpot_s for row in rows]),
            regions,
        ),
        (
            "TTFT (s)",
            np.array([row.measured_ttft_s for row in rows]),
            np.array([row.predicted_ttft_s for row in rows]),
            regions,
        ),
    ]
    with house_style():
        save_figure(validation_figure(panels, _BAND), file)
    typer.echo(f"plot: {file}")


def _report_bench(comparison: BenchComparison, out: Path | None) -> None:
    num_requests = len(comparison.measured["TTFT"])
    typer.echo(f"\n{comparison.name}: {number_of(num_requests, 'request')}; {comparison.label}")
    typer.echo(f"{'':8}{'measured':>12}{'mean':>10}{'p50':>10}{'p90':>10}{'p99':>10}")
    for metric in _METRICS:
        mean_s = float(np.nanmean(comparison.measured[metric]))
        errors = [comparison.mean_error(metric)]
        errors += [comparison.percentile_error(metric, percent) for percent in (50, 90, 99)]
        cells = "".join(f"{error:>+10.1%}" for error in errors)
        typer.echo(f"{metric:8}{mean_s:>10.4f} s{cells}")
    if out is not None:
        file = out / f"{comparison.name.replace(' ', '-').lower()}.png"
        panels = [(m, comparison.measured[m], comparison.predicted[m]) for m in _METRICS]
        with house_style():
            save_figure(cdf_pairs_figure(panels), file)
        typer.echo(f"plot: {file}")
