"""Writing a trace in a format: exactly, or not at all unless losses are allowed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

from traces.errors import TraceError, did_you_mean, listed
from traces.trace import Trace
from traces.writers.mooncake import Mooncake
from traces.writers.own import OwnCsv, OwnJsonl, OwnParquet
from traces.writers.seconds import AZURE, BURSTGPT, SPLITWISE, VIDUR


class Writer(Protocol):
    """One format that can be written."""

    @property
    def name(self) -> str:
        """The name of the format that reads it."""

    def losses(self, trace: Trace) -> list[str]:
        """What of the trace the format can't hold, in words."""

    def write(self, trace: Trace, path: Path) -> None:
        """Write what can be held."""


WRITERS: dict[str, Writer] = {
    writer.name: writer
    for writer in (
        OwnCsv(),
        OwnJsonl(),
        OwnParquet(),
        Mooncake(),
        AZURE,
        VIDUR,
        SPLITWISE,
        BURSTGPT,
    )
}
_OWN = {".csv": "headway-csv", ".jsonl": "headway-jsonl", ".parquet": "headway-parquet"}


def save(
    trace: Trace,
    path: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    format: str | None = None,
    allow_loss: bool = False,
) -> tuple[str, ...]:
    """Write `trace` to `path`; returns what was lost, in words (nothing unless allowed).

    Without a format, it is Headway's own of the suffix: .csv, .jsonl or .parquet. `load` gives
    back an equal trace (with `rebase=False` if the first arrival is not 0); `source` is not
    written. The file is whole or absent: it is written beside its place and then renamed. What
    `load` fills in by itself (ids 0, 1, 2, ..., priority 0, absent values) is left out.

    Raises:
        TraceError: an unknown suffix or format, a path that exists (unless `overwrite`) or can't
            be written, or something in the trace that the format can't hold.
    """
    check_target(path, overwrite=overwrite, format=format)
    target = Path(path)
    writer = _writer_for(target, format)
    lost = writer.losses(trace)
    if lost and not allow_loss:
        raise TraceError(
            f"{path}: {writer.name} can't hold {listed(lost)} of this trace; save it as "
            "headway-jsonl, or allow the loss"
        )
    try:
        _write_then_rename(writer, trace, target)
    except OSError as error:
        raise TraceError(f"{path}: the trace can't be written: {error}") from None
    return tuple(lost)


def check_target(
    path: str | os.PathLike[str], *, overwrite: bool = False, format: str | None = None
) -> None:
    """Raise TraceError if `save` would refuse the path, whatever the trace; so work can fail first.

    That is an unknown suffix or format, or a path that exists (unless `overwrite`).
    """
    target = Path(path)
    _writer_for(target, format)
    if target.is_dir():
        raise TraceError(f"{path}: this is a folder; name a file to write")
    if target.exists() and not overwrite:
        raise TraceError(f"{path}: the file exists; choose another name or give --overwrite")


def _writer_for(target: Path, format: str | None) -> Writer:
    if format is not None:
        if format in WRITERS:
            return WRITERS[format]
        hint = did_you_mean(format, WRITERS)
        raise TraceError(f"can't write format {format!r}{hint}; known are {listed([*WRITERS])}")
    if target.suffix not in _OWN:
        right = listed([*_OWN])
        raise TraceError(
            f"{target}: no format has the suffix {target.suffix!r}; the suffixes are {right}"
        )
    return WRITERS[_OWN[target.suffix]]


def _write_then_rename(writer: Writer, trace: Trace, target: Path) -> None:
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        writer.write(trace, part)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
