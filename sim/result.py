"""The run folder: save a run to it and load it again.

    config.yaml       the resolved study, as the run was given it
    summary.json      every metric, and what the run was made with
    requests.parquet  a row a request: the recorded columns and ttft_s, tpot_s, e2e_s, queue_time_s
    steps.parquet     a row a step
    gaps.parquet      a row a gap between two tokens of a request that is not from one step's end to
                      the next one's: it was preempted, or left out of steps
    plots/*.png

The same result gives the same bytes. The folder appears whole or not at all: it is written under
another name beside its place and then renamed.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from sim.errors import ResultError
from sim.folder_kind import require_run
from sim.folder_sink import GAPS, REQUESTS, STEPS
from sim.metrics import LATENCY_COLUMNS, SCHEMA_VERSION, latency_columns, summarise
from sim.parquet import count_rows, iterate_rows, read_rows, write_rows
from sim.records import (
    DRAFT_COLUMNS,
    GAP_COLUMNS,
    REQUEST_COLUMNS,
    STEP_COLUMNS,
    VARIED_STEP_COLUMNS,
)
from sim.rows import StoredRows, pieces
from sim.run_result import Columns, ReplicaInfo, RunInfo, RunResult, Slo
from sim.staged_folder import CONFIG, SUMMARY, being_written, check_target, staged_folder

__all__ = [
    "CONFIG",
    "GAPS",
    "REQUESTS",
    "STEPS",
    "SUMMARY",
    "ReplicaInfo",
    "RunInfo",
    "RunResult",
    "Slo",
    "being_written",
    "check_target",
    "load",
    "save",
    "staged_folder",
]

PLOTS = "plots"
_IN_MEMORY_ROWS = 1 << 23
_NOWHERE = -1  # the replica of a request that was rejected at arrival


def save(
    result: RunResult, folder: Path | str, plots: bool = True, overwrite: bool = False
) -> Path:
    """Write a run folder and return its path.

    Raises ResultError if the folder exists (unless `overwrite`, and then only if it is a run
    folder or empty) or can't be written; nothing half-written is left behind.
    """
    target = Path(folder)
    with staged_folder(target, overwrite) as stage:
        write_rows(stage / REQUESTS, {**result.requests, **latency_columns(result.requests)})
        write_rows(stage / STEPS, result.steps, varied=VARIED_STEP_COLUMNS)
        write_rows(stage / GAPS, result.gaps)
        write_about(result, stage, plots=plots)
    return target


def write_about(result: RunResult, folder: Path, *, plots: bool = True) -> None:
    """Write what a run folder holds beside the rows: config, summary and plots."""
    write_config(folder / CONFIG, result.config)
    write_json(folder / SUMMARY, summarise(result))
    if plots:
        from sim.plots import save_run_plots  # noqa: PLC0415 -- matplotlib is slow to import

        save_run_plots(result, folder / PLOTS)


def load(folder: Path | str) -> RunResult:
    """Read a run folder.

    Raises ResultError that names the file which is missing or broken, or says what the folder is if
    it is not that of a run.
    """
    source = Path(folder)
    require_run(source)
    requests = _read_table(source / REQUESTS, REQUEST_COLUMNS)
    steps = _read_table(source / STEPS, STEP_COLUMNS)
    gaps = _read_table(source / GAPS, GAP_COLUMNS)
    config = read_config(source / CONFIG)
    info = _info_from(read_summary(source), source / SUMMARY)
    for name, rows in ((REQUESTS, requests), (STEPS, steps), (GAPS, gaps)):
        least = _NOWHERE if name == REQUESTS else 0
        _check_replicas(source / name, rows, least, len(info.replicas))
    return RunResult(config, _without(requests, LATENCY_COLUMNS), steps, gaps, info)


def read_summary(folder: Path | str) -> dict[str, Any]:
    """The saved summary of a run folder. Raises ResultError if it is missing or broken."""
    path = Path(folder) / SUMMARY
    try:
        summary = json.loads(_read_text(path))
    except json.JSONDecodeError as error:
        raise ResultError(f"{path}: not readable as JSON ({error})") from error
    version = summary.get("schema_version") if isinstance(summary, dict) else None
    if version != SCHEMA_VERSION:
        raise ResultError(f"{path}: schema_version is {version!r}, expected {SCHEMA_VERSION}")
    return dict(summary)


def write_config(path: Path, config: Mapping[str, Any]) -> None:
    """Write a mapping of plain values as YAML, its keys in their own order."""
    import yaml  # noqa: PLC0415 -- only the folder's reader and writer need it

    try:
        text = yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True, width=100)
    except yaml.YAMLError as error:
        raise ResultError(f"{path.name}: the config holds a value YAML can't: {error}") from error
    path.write_text(text, encoding="utf-8", newline="\n")


def read_config(path: Path) -> dict[str, Any]:
    """Read the config of a run folder. Raises ResultError if it is missing or broken."""
    import yaml  # noqa: PLC0415 -- only the folder's reader and writer need it

    try:
        config = yaml.safe_load(_read_text(path))
    except yaml.YAMLError as error:
        raise ResultError(f"{path}: not readable as YAML ({error})") from error
    if not isinstance(config, dict):
        raise ResultError(f"{path}: expected keys and values, got {type(config).__name__}")
    return config


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write JSON with its keys in their own order; NaN is refused, since JSON has none."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8", newline="\n")


def _read_table(path: Path, types: Mapping[str, Any]) -> Columns:
    """The rows of a file that has every column, each of its kind (text, whole numbers, ...).

    A table of very many rows stays on disk, and is read column by column as they are asked for.
    """
    columns = dict(next(iterate_rows(path), {}))  # to know what is there
    if count_rows(path) <= _IN_MEMORY_ROWS:
        columns = dict(read_rows(path))
    for name, dtype in types.items():
        if name not in columns:
            if name in DRAFT_COLUMNS and not DRAFT_COLUMNS & columns.keys():  # older rows
                continue
            raise ResultError(f"{path}: the column {name!r} is missing; the file is not whole")
        if columns[name].dtype.kind == "O" and all(isinstance(v, str) for v in columns[name]):
            columns[name] = columns[name].astype(np.str_)  # another program's text
        found, kind = columns[name].dtype, np.dtype(dtype).kind
        if found.kind != ("U" if kind == "O" else kind):
            right = {"O": "text", "i": "whole numbers", "f": "numbers"}[kind]
            raise ResultError(f"{path}: the column {name!r} holds {found}; it must be {right}")
    if count_rows(path) <= _IN_MEMORY_ROWS:
        return columns
    return StoredRows(path, {name: each.dtype for name, each in columns.items()}, count_rows(path))


def _check_replicas(path: Path, rows: Columns, least: int, num_replicas: int) -> None:
    """Raise ResultError for a row of a replica that the summary does not have."""
    for piece in pieces(rows, ("replica",)):
        replica = piece["replica"]
        wrong = replica[(replica < least) | (replica >= num_replicas)]
        if len(wrong):
            known = {0: "are none", 1: "is only replica 0"}
            there = known.get(num_replicas, f"are replicas 0 to {num_replicas - 1}")
            raise ResultError(
                f"{path}: the column 'replica' holds {wrong[0]}, but by {SUMMARY} there {there}"
            )


def _without(columns: Columns, names: Collection[str]) -> Columns:
    if isinstance(columns, StoredRows):
        return columns.without(names)
    return {name: column for name, column in columns.items() if name not in names}


def _info_from(summary: dict[str, Any], path: Path) -> RunInfo:
    from pydantic import TypeAdapter, ValidationError  # noqa: PLC0415 -- only the reader needs it

    try:
        run = summary["run"]
        parts = {field.name: run[field.name] for field in fields(RunInfo)}
        return TypeAdapter(RunInfo).validate_json(json.dumps(parts), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in ("run", *first["loc"]))
        raise ResultError(f"{path}: {where}: {first['input']!r:.60}: {first['msg']}") from error
    except (KeyError, TypeError) as error:
        raise ResultError(f"{path}: its section 'run' is not whole ({error})") from error


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ResultError(f"{path}: no such file; the run folder is not complete") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ResultError(f"{path}: can't be read ({error})") from error
