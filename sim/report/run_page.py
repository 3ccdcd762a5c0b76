"""The page of a run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sim import result as run_folder
from sim.metrics import GLOSSARY, is_finished, latency_columns, meaning
from sim.report import html
from sim.run_result import RunResult
from sim.study.intervals import batch_means
from sim.study.limits import limit_shares
from sim.study.steady import kept_window, mser, steadiness
from sim.summary_table import LATENCIES, fact_rows, latency_labels
from sim.wording import number_of

_STATS = ("count", "mean", "p50", "p90", "p95", "p99", "max")
_SLOWEST = 25
_FEWEST_FOR_INTERVALS = 100


def run_page(folder: Path) -> str:
    """The page: warnings, latencies, facts, plots, the slowest requests, config."""
    run = run_folder.load(folder)
    summary = run_folder.read_summary(folder)
    parts = [
        html.warnings(run_warnings(run, summary)),
        html.heading("Latency of finished requests (s)"),
        html.table(("", *_STATS), _latency_rows(summary)),
    ]
    parts += _intervals(run)
    for name, rows in fact_rows(summary):
        parts += [html.heading(name), html.facts(rows)]
    parts += [html.heading("What requests waited for"), html.facts(_limit_rows(run))]
    parts += _plots(folder, run)
    parts += [html.heading("Slowest requests by E2E"), _slowest(run)]
    parts += [html.heading("How it was made"), html.folded("config.yaml", _config(folder))]
    parts.append(html.folded("what each figure means", _meanings()))
    return html.page(str(run.config.get("name", folder.name)), f"Run folder {folder.name}", parts)


def run_warnings(run: RunResult, summary: Mapping[str, Any]) -> list[str]:
    """What a reader must know before he believes a figure."""
    info, counts = run.info, summary["requests"]
    sentences = ["PARTIAL: the run was stopped before its end"] if info.partial else []
    if not info.cost.get("calibrated"):
        sentences.append(f"Not calibrated: step times are {info.cost.get('label', 'not measured')}")
    sentences += [warning[0].upper() + warning[1:] for warning in info.warnings if warning]
    for state in ("rejected", "aborted", "unfinished"):
        count = counts[f"{state}_requests"]
        if count:
            words = (f"request {state}; it is", f"requests {state}; they are")
            sentences.append(f"{number_of(count, *words)} in no latency")
    if len(run.requests["state"]):
        judged = steadiness(run.requests, kept_window(run.requests, None))
        doubt = (summary["steady_window"] or {}).get("not_steady")
        reasons = dict.fromkeys([*judged.reasons, *([doubt] if doubt else [])])
        sentences += [f"Not steady: {reason}" for reason in reasons]
    return sentences


def _latency_rows(summary: Mapping[str, Any]) -> list[list[Any]]:
    return [
        [label, *(summary["latency"][key][stat] for stat in _STATS)]
        for key, label in latency_labels(summary)
    ]


def _intervals(run: RunResult) -> list[str]:
    """Means with batch-means intervals, of requests after the transient that MSER-5 finds."""
    finished = is_finished(run.requests)
    if int(finished.sum()) < _FEWEST_FOR_INTERVALS:
        return []
    order = np.lexsort((run.requests["request_id"], run.requests["arrival_s"]))
    latency = latency_columns(run.requests)
    rows = []
    for key, label in LATENCIES:
        if key in latency:
            values = latency[key][order][finished[order]]
            values = values[~np.isnan(values)]
            rows.append(_interval_row(label, values))
    names = ("", "left out", "mean", "low", "high", "blocks", "blocks look independent")
    title = "Means of the steady part with 95 % intervals (from block means, s)"
    return [html.heading(title), html.table(names, [row for row in rows if row])]


def _interval_row(label: str, values: npt.NDArray[np.float64]) -> list[Any]:
    cut = mser(values)
    # A run begins empty, so its transient is quick. A cut of a slow beginning is of a busy spell,
    # of which every run has some: without it the mean would be too low.
    if cut and values[:cut].mean() >= values[cut:].mean():
        cut = 0
    if len(values) - cut < _FEWEST_FOR_INTERVALS // 2:
        return []
    found = batch_means(values[cut:])
    interval, is_fine = found.interval, "yes" if found.is_reliable else "no"
    return [label, cut, interval.estimate, interval.low, interval.high, found.num_batches, is_fine]


def _limit_rows(run: RunResult) -> list[tuple[str, str]]:
    shares = limit_shares(run.steps, run.info.replicas)
    names = {
        "none": "nothing waits",
        "budget": "the token budget",
        "kv": "KV blocks",
        "seqs": "the number of sequences",
    }
    return [
        (
            name,
            "-"
            if (share := shares[f"{key}_share"]) is None
            else f"{100 * share:.1f} % of busy time",
        )
        for key, name in names.items()
    ]


def _plots(folder: Path, run: RunResult) -> list[str]:
    """The folder's own plots, or new ones where it has none."""
    files = sorted((folder / run_folder.PLOTS).glob("*.png"))
    parts = [html.heading("Plots")]
    if files:
        return parts + [html.picture(path.read_bytes(), path.stem) for path in files]
    import tempfile  # noqa: PLC0415

    from sim.plots import save_run_plots  # noqa: PLC0415 -- matplotlib is slow to import

    with tempfile.TemporaryDirectory() as temporary:
        drawn = save_run_plots(run, Path(temporary))
        return parts + [html.picture(path.read_bytes(), path.stem) for path in drawn]


def _slowest(run: RunResult) -> str:
    latency = latency_columns(run.requests)
    known = [i for i in latency["e2e_s"].argsort()[::-1].tolist() if latency["e2e_s"][i] >= 0]
    plain = ("request_id", "replica", "priority", "num_prompt_tokens", "num_output_tokens",
             "num_preemptions", "arrival_s")  # fmt: skip
    rows = [
        [
            *(run.requests[name][i].item() for name in plain),
            *(v[i].item() for v in latency.values()),
        ]
        for i in known[:_SLOWEST]
    ]
    return html.table((*plain, *latency), rows)


def _config(folder: Path) -> str:
    return (folder / run_folder.CONFIG).read_text(encoding="utf-8")


def _meanings() -> str:
    return "\n".join(f"{path}: {meaning(path)}" for path in GLOSSARY)
