"""The page of a comparison."""

from pathlib import Path
from typing import Any

import yaml

from sim.errors import ResultError
from sim.folder_kind import FolderKind
from sim.json_object import read_object
from sim.report import html


def comparison_page(folder: Path) -> str:
    """The page: verdicts in words, effects by metric and group, wins, both studies."""
    path = folder / FolderKind.COMPARISON.file
    found = read_object(path)
    try:
        parts = _parts(found)
    except (KeyError, TypeError) as error:
        raise ResultError(f"{path}: is not whole ({error})") from error
    drawing = folder / "compare.png"
    if drawing.is_file():
        parts.insert(2, html.picture(drawing.read_bytes(), "changes with their intervals"))
    return html.page(
        f"{found['a']} against {found['b']}", "A against B, on the same requests", parts
    )


def _parts(found: dict[str, Any]) -> list[str]:
    names = (
        "metric",
        "group",
        "a",
        "b",
        "change",
        "low",
        "high",
        "verdict",
        "method",
        "seeds_needed",
    )
    effects = [[row[name] for name in names] for row in found["effects"]]
    wins = [[w["group"], w["requests"], w["faster"], w["slower"]] for w in found["wins"]]
    verdicts = "".join(f"<li>{html.text(sentence)}</li>" for sentence in found["sentences"])
    configs = [
        html.folded(f"study {name.upper()}", yaml.safe_dump(config, sort_keys=False))
        for name, config in found["configs"].items()
    ]
    return [
        html.warnings(found["notes"]),
        html.heading("Verdicts") + f"<ul>{verdicts}</ul>",
        html.heading("Effects (changes are shares of A where both are positive)"),
        html.table(names, effects),
        html.heading("Requests faster and slower in B (E2E, by more than 1 %)"),
        html.table(("group", "requests", "share faster", "share slower"), wins),
        html.heading("How it was made"),
        *configs,
    ]
