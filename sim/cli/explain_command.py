"""`headway explain`."""

from pathlib import Path

import numpy as np
import typer

from sim import result as run_folder
from sim.errors import ResultError
from sim.folder_kind import require_run
from sim.metrics import has_split
from sim.parquet import read_rows
from sim.run_result import Columns
from sim.time_split import MEANINGS, Cause


def explain_request(folder: Path, request_id: int) -> int:
    """Print where the time of one request of a run folder went; returns the exit code."""
    require_run(folder)
    requests = read_rows(folder / run_folder.REQUESTS)
    if not has_split(requests):
        raise ResultError(
            f"{folder}: the run did not record why requests waited; run it again with "
            "--set engine.explain=true"
        )
    for line in _lines(requests, _row(folder, requests, request_id)):
        typer.echo(line)
    return 0


def _row(folder: Path, requests: Columns, request_id: int) -> int:
    found = np.flatnonzero(requests["request_id"] == request_id)
    if not len(found):
        ids = requests["request_id"]
        known = f"{ids.min()} to {ids.max()}" if len(ids) else "none"
        raise ResultError(f"{folder}: there is no request {request_id}; its requests: {known}")
    return int(found[0])


def _lines(requests: Columns, row: int) -> list[str]:
    parts_s = {cause: float(requests[cause.column][row]) for cause in Cause}
    whole_s = sum(parts_s.values())
    lines = [_headline(requests, row, whole_s)]
    for cause, part_s in parts_s.items():
        if part_s:
            lines.append(f"{part_s:12.6f} s  {100 * part_s / whole_s:5.1f} %  {MEANINGS[cause]}")
    return lines


def _headline(requests: Columns, row: int, whole_s: float) -> str:
    def of(name: str) -> int:
        return int(requests[name][row])

    state = requests["state"][row]
    text = (
        f"request {of('request_id')}, priority {of('priority')}, {of('num_prompt_tokens')} prompt "
        f"and {of('num_output_tokens')} output tokens: {state}"
    )
    if state == "rejected":
        return f"{text} at arrival ({requests['reason'][row]})"
    arrival_s = float(requests["arrival_s"][row])
    return f"{text} {whole_s:.6f} s after its arrival at {arrival_s:.6f} s"
