"""What a run sent, as a trace; and the trace of a study without the rest of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from sim.config import load_study
from sim.config.load import read_study
from sim.config.messages import first_error
from sim.config.schema import TraceSection
from sim.config.trace_options import resolve_trace
from sim.errors import StudyError
from sim.folder_kind import require_run
from sim.parquet import read_rows
from sim.result import CONFIG, REQUESTS, read_summary
from sim.rng import Streams
from sim.wording import number_of
from traces import Trace


@dataclass(frozen=True, slots=True)
class Export:
    """A run's requests as sent; `notes` say where an open replay may differ."""

    trace: Trace
    notes: tuple[str, ...]


def export_run(folder: Path) -> Export:
    """What a run sent: ids, arrivals as sent, lengths, prompts, sessions, priorities.

    The study of the folder makes the trace anew, which is checked against the digest that the run
    saved; the run's rows then say when each request was sent. Requests never sent are left out.
    An open run of the result, with the same engine, sends the same requests at the same instants.

    Raises:
        ResultError: the folder is not whole, or not that of a run.
        StudyError, TraceError: its study no longer makes the trace that the run had.
    """
    require_run(folder)
    mode = read_summary(folder)["run"]["load"]
    study = load_study(folder / CONFIG)
    rows = read_rows(folder / REQUESTS)
    sent_s = dict(zip(rows["request_id"].tolist(), rows["arrival_s"].tolist(), strict=True))
    sent = [row for row, number in enumerate(study.trace.request_id.tolist()) if number in sent_s]
    trace = study.trace.take(sent, f"export({folder.name})")
    arrivals = np.array([sent_s[number] for number in trace.request_id.tolist()])
    exported = trace.with_arrivals(arrivals, "as sent")
    return Export(exported, _notes(mode, exported, rows))


def _notes(mode: str, trace: Trace, rows: Mapping[str, Any]) -> tuple[str, ...]:
    """A request sent within the last step of another comes before it in an open replay."""
    if mode == "open":
        return ()
    ends = rows["last_token_s"][rows["state"] == "finished"]
    num_at_once = int(np.isin(trace.arrival_s, ends).sum())
    if not num_at_once:
        return ()
    requests = number_of(num_at_once, "request was", "requests were")
    return (
        f"{requests} sent at the very instant another ended: an open replay sends such a one just "
        "before that end, which a router that looks at load may answer otherwise",
    )


def trace_of_study(path: Path, seed: int | None) -> Trace:
    """The trace of a study file; one with a trace section alone will do.

    Raises:
        StudyError, TraceError: what is wrong, in one sentence.
    """
    values = read_study(path)
    if "trace" not in values:
        raise StudyError(f"{path}: trace: missing; it has no default")
    try:
        section = TraceSection.model_validate(values["trace"])
    except ValidationError as error:
        key, sentence = first_error(error, TraceSection)
        raise StudyError(f"{path}: trace.{key}: {sentence}") from error
    chosen = values.get("seed", 0) if seed is None else seed
    if type(chosen) is not int or chosen < 0:
        raise StudyError(f"{path}: seed: {chosen!r} is not an integer of at least 0")
    return resolve_trace(section, Streams(chosen))
