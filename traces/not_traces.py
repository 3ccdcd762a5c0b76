"""What is often given for a trace and is none: what it is, and what to give instead."""

from __future__ import annotations

from collections.abc import Collection
from fnmatch import fnmatch
from pathlib import Path

from traces.errors import TraceError

_RUN_FILES = ("summary.json", "requests.parquet")
_RUN_COLUMNS = ({"replica", "state"}, {"replica", "step"})
"""Of the rows of requests, and of those of steps and gaps."""

_CLIENT, _LENGTHS = "chunk-*-trace.csv", "chunk-*-dataset.json"


def refuse_folder(folder: Path) -> None:
    """Raise TraceError for a folder: a run's, ServeGen's, or one to name a file of."""
    if all((folder / name).is_file() for name in _RUN_FILES):
        raise TraceError(f"{folder}: this is the folder of a run, not a trace; {_export(folder)}")
    if any(folder.glob(_CLIENT)):
        raise TraceError(
            f"{folder}: these are ServeGen's clients, not a trace; {_servegen(folder)}"
        )
    raise TraceError(f"{folder}: this is a directory; name a trace file, or {folder}/*.csv")


def refuse_clients(path: Path) -> None:
    """Raise TraceError for a file of one of ServeGen's clients, which its name tells."""
    if fnmatch(path.name, _CLIENT) or fnmatch(path.name, _LENGTHS):
        what = "this is about one of ServeGen's clients, not a trace"
        raise TraceError(f"{path}: {what}; {_servegen(path.parent)}")


def refuse_rows_of_a_run(path: Path, columns: Collection[str]) -> None:
    """Raise TraceError for a table with the columns of a run's rows."""
    if any(some <= {*columns} for some in _RUN_COLUMNS):
        raise TraceError(
            f"{path}: these are the rows of a run, not a trace; {_export(path.parent)}"
        )


def _export(folder: Path) -> str:
    return f"`headway trace export {folder} sent.jsonl` writes what the run sent as a trace"


def _servegen(folder: Path) -> str:
    return (
        f"requests are generated from them: in a study, trace: {{servegen: {{path: {folder}, "
        "start_s: 0, end_s: 3600}}, which `headway trace generate` writes as a trace"
    )
