"""The page of an advice: what it says, then the sweep that it was chosen from."""

from pathlib import Path
from typing import Any

from sim.errors import ResultError
from sim.metrics.units import metric_words
from sim.report import html
from sim.report.sweep_page import sweep_contents
from sim.study.advice_folder import ADVICE, FIGURE, read_advice


def advice_page(folder: Path) -> str:
    """The page: the advised settings, the figure, what was left out, and the sweep's own parts."""
    found, sweep = read_advice(folder), sweep_contents(folder)
    try:
        parts = [*_advised(found), *_figure(folder), *_left_out(found)]
    except (KeyError, TypeError) as error:
        raise ResultError(f"{folder / ADVICE}: is not whole ({error})") from error
    subtitle = f"Advice from a {sweep.subtitle[0].lower()}{sweep.subtitle[1:]}"
    return html.page(sweep.title, subtitle, [sweep.warnings, *parts, *sweep.parts])


def _advised(found: dict[str, Any]) -> list[str]:
    latency = metric_words(found["latency"])
    cost = f"{found['cost_unit']} / 1M output tokens"
    if not found["advices"]:
        return [html.heading("Advised settings"), "<p>None: every setting is left out.</p>"]
    names = ["", "setting", f"{latency} (s)", cost, "why", "limited by", "study"]
    keys = ("setting", "latency_s", "cost", "why", "limit", "study")
    rows = [[i, *(one[key] for key in keys)] for i, one in enumerate(found["advices"], start=1)]
    words = f"Advised settings: no other one is better in both {latency} and cost"
    return [html.heading(words), html.table(names, rows)]


def _figure(folder: Path) -> list[str]:
    drawing = folder / FIGURE
    return [html.picture(drawing.read_bytes(), drawing.stem)] if drawing.is_file() else []


def _left_out(found: dict[str, Any]) -> list[str]:
    rows = [(one["setting"], one["why"]) for one in found["left_out"]]
    return [html.heading("Left out"), html.table(("setting", "why"), rows)] if rows else []
