"""What `advise` adds to the folder of its sweep.

advice.json      the settings that are advised, what they were chosen by, and what was left out
advice/*.yaml    a study for each, to run
pareto.png       every setting, and those
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sim.folder_kind import FolderKind
from sim.json_object import read_object
from sim.study.advise import Advice, Front
from sim.study.plan import Plan
from sim.study.point_store import write_atomically
from sim.study.sweep_folder import study_text

ADVICE, STUDIES, FIGURE = FolderKind.ADVICE.file, "advice", "pareto.png"


def write_advice(
    folder: Path,
    plan: Plan,
    advices: Sequence[Advice],
    front: Front,
    *,
    latency: str,
    cost_unit: str,
) -> None:
    """Write everything but the figure, in place of an earlier advice and its figure.

    `latency` is the metric that was weighed (`ttft_p99_s`) against cost, in `cost_unit` for a
    million output tokens. Raises ResultError if it can't be written.
    """
    for old in (folder / ADVICE, folder / FIGURE, *(folder / STUDIES).glob("*.yaml")):
        old.unlink(missing_ok=True)
    names = [f"{plan.base.get('name', 'study')}-{i}" for i in range(1, len(advices) + 1)]
    for name, advice in zip(names, advices, strict=True):
        text = study_text({**advice.values, "name": name})
        write_atomically(folder / STUDIES / f"{name}.yaml", text)
    document = {
        "latency": latency,
        "cost_unit": cost_unit,
        "advices": [
            _entry(f"{STUDIES}/{name}.yaml", advice)
            for name, advice in zip(names, advices, strict=True)
        ],
        "left_out": [{"setting": label, "why": why} for label, why in front.left_out],
    }
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False).encode()
    write_atomically(folder / ADVICE, text + b"\n")


def read_advice(folder: Path) -> dict[str, Any]:
    """What `write_advice` wrote. Raises ResultError if it can't be read."""
    return read_object(folder / ADVICE)


def _entry(study: str, advice: Advice) -> dict[str, Any]:
    return {
        "study": study,
        "setting": advice.label,
        "latency_s": advice.latency_s,
        "cost": advice.cost,
        "why": advice.why,
        "limit": advice.limit,
    }
