"""The folder of a sweep: its plan, its kept points and its table.

sweep.yaml       the base study and the sweep section, to run again
points/*.json    a row a point, by fingerprint
table.parquet, table.csv   all rows of the plan, in its order
"""

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from sim.errors import ResultError
from sim.folder_kind import FolderKind
from sim.study.plan import Plan
from sim.study.point_store import PointStore, write_atomically
from sim.study.row import Row

PLAN = FolderKind.SWEEP.file
POINTS, TABLE_PARQUET, TABLE_CSV = "points", "table.parquet", "table.csv"


def open_folder(folder: Path, plan: Plan) -> PointStore:
    """Make the folder, or go on in the one that is there; returns its store.

    Raises:
        ResultError: it can't be written, or holds other things than a sweep.
    """
    if folder.exists() and not folder.is_dir():
        raise ResultError(f"{folder}: is a file; name a folder for the sweep")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / PLAN).exists():
        raise ResultError(f"{folder}: holds other things than a sweep; choose another name")
    text = study_text({**plan.base, "sweep": plan.sweep.model_dump(exclude_none=True)})
    if (folder / PLAN).exists() and (folder / PLAN).read_bytes() != text:
        (folder / FolderKind.ADVICE.file).unlink(missing_ok=True)  # it was of another plan
    write_atomically(folder / PLAN, text)
    store = PointStore(folder / POINTS)
    store.clear_leavings()
    return store


def study_text(values: Mapping[str, Any]) -> bytes:
    """A study as YAML, its keys in their own order."""
    return yaml.safe_dump(
        dict(values), sort_keys=False, allow_unicode=True, width=100, encoding="utf-8"
    )


def write_table(folder: Path, rows: Sequence[Row], stem: str = "table") -> pd.DataFrame:
    """Write `stem.parquet` and `stem.csv`, a row a point and seed; returns the table.

    Raises ResultError if the disk does not take it.
    """
    table = to_table(rows)
    buffer = io.BytesIO()
    table.to_parquet(buffer, index=False)
    write_atomically(folder / f"{stem}.parquet", buffer.getvalue())
    write_atomically(folder / f"{stem}.csv", table.to_csv(index=False).encode())
    return table


def to_table(rows: Sequence[Row]) -> pd.DataFrame:
    """Rows as a table; a column with values of several kinds, or with lists, becomes text."""
    table = pd.DataFrame(list(rows))
    for name in table.columns:
        if table[name].dtype == object:
            kinds = {type(value) for value in table[name] if value is not None}
            if not kinds:
                table[name] = table[name].astype("float64")
            elif len(kinds) > 1 or kinds & {list, dict, tuple}:
                table[name] = _one_kind(table[name])
    return table


def read_table(folder: Path, stem: str = "table") -> pd.DataFrame:
    """The table of a sweep folder. Raises ResultError if it is missing or broken."""
    path = folder / f"{stem}.parquet"
    if not path.is_file():
        raise ResultError(f"{path}: no such file; the sweep has not come to its end yet")
    try:
        return pd.read_parquet(path)
    except (OSError, ValueError) as error:
        raise ResultError(f"{path}: not a readable Parquet file ({error})") from error


def _one_kind(column: "pd.Series[Any]") -> "pd.Series[Any]":
    """Booleans and numbers with gaps stay so; all else becomes text."""
    values = [value for value in column if not _is_absent(value)]
    if values and all(isinstance(v, bool) for v in values):
        return column.astype("boolean")
    if values and all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
        return column.astype("float64")
    return column.map(lambda value: None if _is_absent(value) else str(value))


def _is_absent(value: object) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))
