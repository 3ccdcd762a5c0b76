"""Writing a trace in Headway's own formats: exactly, or not at all."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from traces.errors import TraceError, listed
from traces.trace import Trace


def save(trace: Trace, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Write `trace` to `path` in the format of its suffix: .csv, .jsonl or .parquet.

    `load` gives back an equal trace (with `rebase=False` if the first arrival is not 0);
    `source` is not written. The file is whole or absent: it is written beside its place and
    then renamed. Column request_id is left out where ids are 0, 1, 2, ... and priority where
    all are 0, as these are what `load` fills in.

    Raises:
        TraceError: an unknown suffix, a path that exists (unless `overwrite`) or can't be
            written, or something in the trace that the format can't hold.
    """
    target = Path(path)
    write = _writer_for(target)
    if target.exists() and not overwrite:
        raise TraceError(f"{path}: the file exists; allow overwriting or choose another name")
    try:
        _write_then_rename(write, trace, target)
    except OSError as error:
        raise TraceError(f"{path}: the trace can't be written: {error}") from None


def _writer_for(target: Path) -> Callable[[Trace, Path], None]:
    writers = {".csv": _write_csv, ".jsonl": _write_jsonl, ".parquet": _write_parquet}
    try:
        return writers[target.suffix]
    except KeyError:
        right = listed([*writers])
        raise TraceError(
            f"{target}: no format has the suffix {target.suffix!r}; the suffixes are {right}"
        ) from None


def _write_then_rename(write: Callable[[Trace, Path], None], trace: Trace, target: Path) -> None:
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        write(trace, part)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def _columns(trace: Trace) -> dict[str, Any]:
    """Columns to write, by name: those that `load` would fill in by itself left out."""
    columns = {
        "arrival_s": trace.arrival_s,
        "num_prompt_tokens": trace.num_prompt_tokens,
        "num_output_tokens": trace.num_output_tokens,
    }
    if not np.array_equal(trace.request_id, np.arange(len(trace))):
        columns["request_id"] = trace.request_id
    if trace.priority.any():
        columns["priority"] = trace.priority
    return columns


def _write_csv(trace: Trace, path: Path) -> None:
    if trace.prompts is not None:
        raise TraceError("CSV can't hold prompt segments; save the trace as .jsonl or .parquet")
    columns = _columns(trace)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*(column.tolist() for column in columns.values()), strict=True))


def _write_jsonl(trace: Trace, path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        file.writelines(_json_lines(trace))


def _json_lines(trace: Trace) -> Iterator[str]:
    columns = _columns(trace)
    rows = zip(*(column.tolist() for column in columns.values()), strict=True)
    for index, row in enumerate(rows):
        record = dict(zip(columns, row, strict=True))
        if trace.prompts is not None and trace.prompts[index]:
            record["prompt"] = trace.prompts[index]
        yield json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n"


def _write_parquet(trace: Trace, path: Path) -> None:
    import pyarrow as pa  # noqa: PLC0415  (only those who use Parquet pay for it)
    import pyarrow.parquet as pq  # noqa: PLC0415

    columns = {name: pa.array(column) for name, column in _columns(trace).items()}
    if trace.prompts is not None:
        segment = pa.struct([("segment_id", _id_type(trace)), ("num_tokens", pa.int64())])
        rows = [[_segment_record(each) for each in prompt] for prompt in trace.prompts]
        columns["prompt"] = pa.array(rows, pa.list_(segment))
    pq.write_table(pa.table(columns), path)


def _id_type(trace: Trace) -> Any:
    import pyarrow as pa  # noqa: PLC0415

    kinds = {type(each[0]) for prompt in trace.prompts or () for each in prompt}
    if len(kinds) > 1:
        raise TraceError(
            "Parquet can't hold text and integer segment ids in one trace; save it as .jsonl"
        )
    return pa.string() if kinds == {str} else pa.int64()


def _segment_record(segment: tuple[int | str, int]) -> dict[str, int | str]:
    return {"segment_id": segment[0], "num_tokens": segment[1]}
