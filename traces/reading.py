"""Reading the files of a trace in chunks, so that no more than a chunk need sit in memory."""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field

from traces.errors import TraceError
from traces.files import InputFile
from traces.formats.base import Chunk, Format, Part, Plan, Wanted
from traces.formats.registry import detect, format_named
from traces.rows import BadRows, OnBadRow
from traces.time_units import check_unit

TracePath = str | os.PathLike[str]


@dataclass(slots=True)
class Reading:
    """A trace file, or the files of a glob, being read; iterate `chunks` once.

    Files of a glob are read in the order of their names, as parts of one trace. What is known of
    the whole (`sha256`, `num_rows`, `bad_rows`) is so after the last chunk.

    Attributes:
        name: the path or pattern as given.
        format: of all files.
        plan: how they are read, guessed from the first file unless wanted otherwise.
        num_rows: rows met so far, those left out as bad included.
        bad_rows: what became of the rows that are wrong.
        is_guess: whether format, time unit or block size was guessed.
    """

    name: str
    paths: list[str]
    format: Format
    plan: Plan
    bad_rows: BadRows
    is_guess: bool
    num_rows: int = 0
    digests: list[str] = field(default_factory=list)

    def chunks(self) -> Iterator[Chunk]:
        """All rows of all files, in order.

        Raises:
            TraceError: a file can't be read, or a row is wrong and that is an error.
        """
        num_good = 0
        for index, path in enumerate(self.paths):
            with InputFile(path) as file:
                part = Part(index, self.num_rows, self.plan, self.bad_rows)
                for chunk in self.format.read(file, part):
                    self.num_rows = int(chunk.rows[-1]) + 1
                    num_good += len(chunk)
                    yield chunk
                num_bad = sum(self.bad_rows.num_by_reason.values())
                self.num_rows = max(self.num_rows, num_good + num_bad)
                self.digests.append(file.sha256())

    @property
    def sha256(self) -> str:
        """Digest of the bytes of the file; of several, the digest of their digests."""
        if len(self.digests) == 1:
            return self.digests[0]
        return hashlib.sha256("".join(self.digests).encode()).hexdigest()

    def describe(self) -> str:
        """How the trace is read, in one sentence."""
        unit = "clock times" if self.plan.time_unit is None else f"times in {self.plan.time_unit}"
        kind = "full blocks" if self.plan.full_blocks_only else "blocks"
        blocks = f", {kind} of {self.plan.block_size} tokens" if self.plan.block_size else ""
        how = "guessed from its content" if self.is_guess else "as said"
        return f"{self.name}: read as {self.format.name}, {unit}{blocks} ({how})"


def open_trace(
    path: TracePath,
    format: str = "auto",
    *,
    time_unit: str | None = None,
    block_size: int | None = None,
    on_bad_row: OnBadRow = "error",
) -> Reading:
    """Find the files, their format and how to read them, without reading them.

    Raises:
        TraceError: a file is missing, or nothing known; or something is wanted that is not so.
    """
    if time_unit is not None:
        check_unit(time_unit)
    if block_size is not None and block_size < 1:
        raise TraceError(f"block_size: {block_size!r} is wrong; it must be at least 1")
    if on_bad_row not in ("error", "skip"):
        raise TraceError(f"on_bad_row: {on_bad_row!r} is wrong; it must be 'error' or 'skip'")
    name = os.fspath(path)
    paths = _paths(name)
    with InputFile(paths[0]) as file:
        chosen = detect(file.head) if format == "auto" else format_named(format)
        plan = chosen.plan(file.head, Wanted(time_unit, block_size))
    is_guess = format == "auto" or (plan.time_unit is not None and time_unit is None)
    return Reading(name, paths, chosen, plan, BadRows(on_bad_row), is_guess)


def iter_chunks(path: TracePath, format: str = "auto", **options: object) -> Iterator[Chunk]:
    """The rows of a trace a chunk at a time; options as `open_trace`.

    Raises:
        TraceError: as `open_trace`, and while reading, for the first bad row.
    """
    return open_trace(path, format, **options).chunks()  # type: ignore[arg-type]


def _paths(name: str) -> list[str]:
    """The file of that name, or the files that a pattern names, in order."""
    if not glob.has_magic(name) or os.path.lexists(name):
        return [name]
    found = sorted(path for path in glob.glob(name, recursive=True) if not os.path.isdir(path))  # noqa: PTH207, PTH112
    if not found:
        raise TraceError(f"{name}: no file has a name of this pattern")
    return found
