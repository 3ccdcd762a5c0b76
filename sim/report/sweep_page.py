"""The page of a sweep."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from sim.metrics.units import axis_unit
from sim.report import html
from sim.result import read_config
from sim.study.sweep_folder import PLAN, read_table
from sim.wording import number_of

_COLUMNS = {
    "status": "status",
    "load.arrival_rate_per_s": "requests/s in",
    "per_gpu.output_tokens_per_s": "tokens/s/GPU",
    "latency.ttft_s.mean": "TTFT mean (s)",
    "latency.ttft_s.p99": "TTFT p99 (s)",
    "latency.tpot_s.mean": "TPOT mean (s)",
    "latency.e2e_s.p99": "E2E p99 (s)",
    "goodput.good_share_of_arrived": "good share",
    "preemption.preemptions": "preemptions",
    "limits.main": "limited by",
}
_FAULTS = (
    (
        "load.is_saturated",
        "is saturated: its latencies grow with the length of the trace",
        "are saturated: their latencies grow with the length of the trace",
    ),
    ("requests.rejected_requests", "rejected requests", "rejected requests"),
)
"""Columns that tell of a fault, and what to say of one point and of several."""
_HEAT = (
    ("latency.ttft_s.p99", "TTFT p99"),
    ("per_gpu.output_tokens_per_s", "output tokens / s / GPU"),
)


class SweepContents(NamedTuple):
    """What a page says about a sweep: its title, and pieces of HTML."""

    title: str
    subtitle: str
    warnings: str
    parts: list[str]


def sweep_page(folder: Path) -> str:
    """The page: warnings, a row a point, heat maps of two keys, the plan."""
    found = sweep_contents(folder)
    return html.page(found.title, found.subtitle, [found.warnings, *found.parts])


def sweep_contents(folder: Path) -> SweepContents:
    """The pieces of that page.

    Raises:
        ResultError: a file of the folder is missing or broken.
    """
    plan = read_config(folder / PLAN)
    table = read_table(folder)
    keys = [key for key in plan.get("sweep", {}).get("grid", {}) if key in table.columns]
    table["status"] = _status(table)
    names = {**{key: key for key in (*keys, "seed")}, **_COLUMNS}
    shown = [name for name in names if name in table.columns]
    rows = [[_plain(value) for value in row] for row in table[shown].itertuples(index=False)]
    parts = [
        html.heading("Points"),
        html.table([names[name] for name in shown], rows),
        *_pictures(folder, table, keys),
        html.heading("How it was made"),
        html.folded(PLAN, (folder / PLAN).read_text(encoding="utf-8")),
    ]
    subtitle = f"Sweep of {number_of(len(table), 'point')} over {', '.join(keys) or 'seeds'}"
    title = str(plan.get("name", folder.name))
    return SweepContents(title, subtitle, html.warnings(_warnings(table)), parts)


def _status(table: pd.DataFrame) -> list[str]:
    saturated = _column(table, "load.is_saturated")
    return [
        f"failed: {error}" if error else "saturated" if full is True else "ok"
        for error, full in zip(table["error"].fillna(""), saturated, strict=True)
    ]


def _warnings(table: pd.DataFrame) -> list[str]:
    sentences = []
    failed = int((table["error"].fillna("") != "").sum())
    if failed:
        rows = "its row says" if failed == 1 else "their rows say"
        points = number_of(len(table), "point")
        sentences.append(f"{failed:,} of {points} failed; {rows} why")
    if not all(value is True for value in _column(table, "run.is_calibrated")):
        labels = sorted({str(v) for v in _column(table, "run.cost") if isinstance(v, str)})
        sentences.append(f"Not calibrated: step times are {'; '.join(labels)}")
    for name, one, many in _FAULTS:
        count = sum(bool(value) for value in _column(table, name) if not pd.isna(value))
        if count:
            sentences.append(number_of(count, f"point {one}", f"points {many}"))
    unsteady = sum(value is False for value in _column(table, "steady.is_steady"))
    if unsteady:
        words = number_of(unsteady, "point is", "points are")
        sentences.append(f"{words} not steady over the whole run")
    said = {str(v) for v in _column(table, "run.warnings") if isinstance(v, str) and v}
    return sentences + sorted(said)[:5]


def _column(table: pd.DataFrame, name: str) -> list[Any]:
    return [_plain(v) for v in table[name]] if name in table.columns else [None] * len(table)


def _plain(value: Any) -> Any:
    """Numpy and pandas scalars as Python ones."""
    if value is pd.NA:
        return None
    return value.item() if isinstance(value, np.generic) else value


def _pictures(folder: Path, table: pd.DataFrame, keys: Sequence[str]) -> list[str]:
    """The curve if there is one, and heat maps where two keys vary."""
    curve = folder / "curve.png"
    parts = [html.picture(curve.read_bytes(), curve.stem)] if curve.is_file() else []
    varying = [key for key in keys if table[key].nunique() > 1]
    if len(varying) >= 2:
        parts.append(html.picture(_heat_maps(table, varying[0], varying[1]), "heat maps"))
    if len(varying) > 2:
        parts.append(f"<p>Means over {html.text(', '.join(varying[2:]))}.</p>")
    return [html.heading("Plots"), *parts] if parts else []


def _heat_maps(table: pd.DataFrame, y_key: str, x_key: str) -> bytes:
    from sim.plots.encode import figure_bytes  # noqa: PLC0415
    from sim.plots.heat_map import plot_heat_map  # noqa: PLC0415 -- matplotlib is slow to import
    from sim.plots.style import house_style, new_figure  # noqa: PLC0415

    known = [(path, name) for path, name in _HEAT if path in table.columns]
    with house_style():
        figure = new_figure(3.6, 10.5)
        axes = figure.subplots(1, max(len(known), 1), squeeze=False)[0]
        for ax, (path, words) in zip(axes, known, strict=True):
            name = words
            cells = table.pivot_table(
                index=y_key, columns=x_key, values=path, aggfunc="mean", dropna=False
            )
            values = cells.to_numpy(dtype=np.float64)
            if path.startswith("latency."):
                unit = axis_unit(values.ravel())
                values, name = unit.scale * values, f"{name} ({unit.name})"
            x_values, y_values = _labels(cells.columns), _labels(cells.index)
            names = {"x_name": _short(x_key), "y_name": _short(y_key), "name": name}
            plot_heat_map(ax, values, x_values, y_values, **names)
        return figure_bytes(figure)


def _short(key: str) -> str:
    """The key without its section: the table above has the whole."""
    return key.rpartition(".")[2]


def _labels(index: "pd.Index[Any]") -> list[str]:
    return [f"{value:,g}" if isinstance(value, float) else str(value) for value in index]
