"""The page of a capacity answer."""

from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from sim.errors import ResultError
from sim.metrics.units import metric_words
from sim.report import html
from sim.study.capacity_folder import CAPACITY, read_capacity
from sim.study.slo import Limit
from sim.study.sweep_folder import read_table

_WORDS = {
    "seed": "seed",
    "step_times": "step times",
    "arrival_rate_per_s": "requests/s",
    "meets": "meets",
    "limited_by": "limited by",
    "num_in_system": "in the system",
}
_UNIT = {"rate": "requests/s", "replicas": "replicas"}


def capacity_page(folder: Path) -> str:
    """The page: answers with intervals, limits, the figure, searches, every probe, the study."""
    found, probes = read_capacity(folder), read_table(folder, "probes")
    try:
        parts = _parts(found, probes)
    except (KeyError, TypeError, IndexError) as error:
        raise ResultError(f"{folder / CAPACITY}: is not whole ({error})") from error
    drawing = folder / "capacity.png"
    if drawing.is_file():
        parts.insert(3, html.picture(drawing.read_bytes(), "probes, limits and answers"))
    what = "Largest rate" if found["kind"] == "rate" else "Fewest replicas"
    limits = " and ".join(Limit(**limit).words() for limit in found["limits"])
    return html.page(str(found["study"].get("name", folder.name)), f"{what} with {limits}", parts)


def _parts(found: dict[str, Any], probes: pd.DataFrame) -> list[str]:
    said = "".join(f"<li>{_said(answer)}</li>" for answer in found["answers"])
    return [
        html.warnings([*_uncalibrated(found), *found["warnings"]]),
        html.heading("Answer") + f"<ul>{said}</ul>",
        html.table(*_answers(found)),
        html.heading("Searches"),
        html.table(*_searches(found)),
        html.heading("Probes"),
        html.table(*_probes(found, probes)),
        html.heading("How it was made"),
        html.folded("study", yaml.safe_dump(found["study"], sort_keys=False)),
    ]


def _said(answer: dict[str, Any]) -> str:
    sentences = (answer["sentence"], answer["spread_sentence"])
    return "<br>".join(html.text(sentence) for sentence in sentences if sentence)


def _uncalibrated(found: dict[str, Any]) -> list[str]:
    labels = {a["cost_label"] for a in found["answers"] if not a["is_calibrated"]}
    return [f"Not calibrated: step times are {label}" for label in sorted(labels)]


def _answers(found: dict[str, Any]) -> tuple[list[str], list[list[Any]]]:
    names = ["configuration", _UNIT[found["kind"]], "low", "high", "limited by", "hardware"]
    keys = ["limited_by", "hardware"]
    if found["kind"] == "replicas":
        names += ["GPUs", "watts at most", "dollars an hour"]
        keys += ["gpus", "watts", "dollars_an_hour"]
    rows = []
    for answer in found["answers"]:
        spread = answer["spread"] or {}
        ends = [spread.get("low"), spread.get("high")]
        rows.append([answer["configuration"], answer["value"], *ends, *map(answer.get, keys)])
    return names, rows


def _searches(found: dict[str, Any]) -> tuple[list[str], list[list[Any]]]:
    unit = _UNIT[found["kind"]]
    names = ["configuration", "seed", "step times", f"meets ({unit})", "next that misses", "probes"]
    keys = ("configuration", "seed", "step_times", "value", "next_bad", "num_probes")
    return names, [[search[key] for key in keys] for search in found["searches"]]


def _probes(found: dict[str, Any], probes: pd.DataFrame) -> tuple[list[str], list[list[Any]]]:
    """A row a probe; latencies in seconds, as their keys say."""
    metrics = [limit["metric"] for limit in found["limits"]]
    words = {"configuration": "configuration", "value": "value probed", **_WORDS}
    words |= {metric: _with_unit(metric) for metric in metrics}
    order = ["configuration", "seed", "step_times", "value", "arrival_rate_per_s", *metrics,
             "meets", "limited_by", "num_in_system"]  # fmt: skip
    table = probes[order].astype(object).where(probes[order].notna(), None)
    rows = [[_plain(value) for value in row] for row in table.itertuples(index=False)]
    return [words[name] for name in order], rows


def _plain(value: Any) -> Any:
    """Truths as words, numpy's numbers as Python's."""
    value = value.item() if hasattr(value, "item") else value
    return ("no", "yes")[value] if isinstance(value, bool) else value


def _with_unit(metric: str) -> str:
    return metric_words(metric) + (" (s)" if metric.endswith("_s") else "")
