"""What a format is: something that claims a file's beginning and reads it in chunks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, Protocol

import numpy as np

from traces.arrays import FloatArray, IntArray
from traces.errors import TraceError
from traces.files import Head, InputFile
from traces.labels import Labels
from traces.prompt_table import PromptTable
from traces.rows import BadRows
from traces.time_units import TICKS_PER_S


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some rows of a file, in file order, each cell checked but zero counts still in.

    Attributes:
        rows: number of each row among the file's rows, from 0; those left out are counted.
        places: line (text) or row (Parquet) of each row, from 1.
        times: in ticks of the plan's time unit; integers or floats, any origin.
        num_prompt_tokens: 0 to `MAX_NUM_TOKENS`.
        num_output_tokens: 0 to `MAX_NUM_TOKENS`.
        priority: None where the file has no such column; so for all below.
        request_id: ids given by the file; without it, ids are row numbers.
        prompts: an empty row is content of its own.
        session_id: session of each row.
        parent_id: id (a row number, where the file gives no ids) of the row before in the
            session; -1 for none.
        think_time_s: seconds from the parent's completion to the sending; NaN if not recorded.
        tenant: who sent each row.
        lora_id: LoRA adapter, 0 for none.
    """

    rows: IntArray
    places: IntArray
    times: IntArray | FloatArray
    num_prompt_tokens: IntArray
    num_output_tokens: IntArray
    priority: IntArray | None = None
    request_id: IntArray | None = None
    prompts: PromptTable | None = None
    session_id: Labels | None = None
    parent_id: IntArray | None = None
    think_time_s: FloatArray | None = None
    tenant: Labels | None = None
    lora_id: IntArray | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def taken(self, kept: IntArray) -> Chunk:
        """The rows at the given places."""
        return Chunk(**{name: _taken(column, kept) for name, column in self._items()})

    def _items(self) -> list[tuple[str, Any]]:
        return [(each.name, getattr(self, each.name)) for each in fields(self)]


def joined_column(name: str, chunks: list[Chunk]) -> Any:
    """One column of all chunks, filled in where a chunk lacks it; None where all do."""
    columns = [getattr(chunk, name) for chunk in chunks]
    if all(column is None for column in columns):
        return None
    filled = [
        _ABSENT[name](len(chunk)) if column is None else column
        for chunk, column in zip(chunks, columns, strict=True)
    ]
    if name == "prompts":
        return PromptTable.concatenate(filled)
    if name in ("session_id", "tenant"):
        return Labels.concatenate(filled)
    return np.concatenate(filled)


_ABSENT: dict[str, Any] = {
    "prompts": PromptTable.empty,
    "session_id": Labels.none,
    "tenant": Labels.none,
    "parent_id": lambda num_rows: np.full(num_rows, -1, dtype=np.int64),
    "think_time_s": lambda num_rows: np.full(num_rows, np.nan),
    "priority": lambda num_rows: np.zeros(num_rows, dtype=np.int64),
    "lora_id": lambda num_rows: np.zeros(num_rows, dtype=np.int64),
}


def _taken(column: Any, kept: IntArray) -> Any:
    if column is None:
        return None
    return column.take(kept) if isinstance(column, (PromptTable, Labels)) else column[kept]


@dataclass(frozen=True, slots=True)
class Plan:
    """How a file will be read: what was guessed from its beginning, or said by the user.

    Attributes:
        time_unit: of its numbers; None for clock times, which need no unit.
        block_size: tokens that a hash id stands for; None where there are no hash ids.
        full_blocks_only: whether the last, partial block of a prompt has no hash id.
        has_arrivals: whether the file says when requests come.
        has_common_time: whether the times of several files are of one clock.
        notes: what a user should know of this reading, one sentence each.
    """

    time_unit: str | None = "s"
    block_size: int | None = None
    full_blocks_only: bool = False
    has_arrivals: bool = True
    has_common_time: bool = True
    notes: tuple[str, ...] = ()

    @property
    def ticks_per_s(self) -> int:
        """Units of `Chunk.times` in a second; clock times are in nanoseconds."""
        return TICKS_PER_S[self.time_unit or "ns"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the user says of a file instead of a guess; None leaves it to be guessed."""

    time_unit: str | None = None
    block_size: int | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """One file of a trace that may consist of several."""

    index: int
    first_row: int
    plan: Plan
    bad_rows: BadRows


class Format(Protocol):
    """One recorded format. Add one by writing it in its own file and listing it in `registry`."""

    @property
    def name(self) -> str:
        """What a user writes to choose it."""

    @property
    def summary(self) -> str:
        """Its columns or keys in a few words, for error messages and help."""

    @property
    def place_word(self) -> str:
        """What `Chunk.places` counts: "line", "row" or "request"."""

    def score(self, head: Head) -> float:
        """How surely the file is of this format: 1 certain, 0 certainly not.

        Between: the share of the needed columns that are there, misspelt ones counted a little
        less, so that a file with a slip still reaches the format that can name the slip.
        """

    def plan(self, head: Head, wanted: Wanted) -> Plan:
        """How the file will be read: guessed from its beginning where nothing is wanted.

        Raises:
            TraceError: something is wanted that the format has not.
        """

    def read(self, file: InputFile, part: Part) -> Iterator[Chunk]:
        """The rows in file order, numbered from `part.first_row`.

        Raises:
            TraceError: for a bad header, or a bad row unless `part.bad_rows` counts those.
        """


def numeric_plan(name: str, wanted: Wanted, unit: str) -> Plan:
    """The plan of a format with times as numbers in `unit` and no hash ids."""
    refuse_block_size(name, wanted)
    return Plan(time_unit=wanted.time_unit or unit)


def clock_plan(name: str, wanted: Wanted) -> Plan:
    """The plan of a format with clock times and no hash ids."""
    refuse_block_size(name, wanted)
    if wanted.time_unit is not None:
        raise TraceError(f"time_unit: {name} has clock times, which have no unit; leave it out")
    return Plan(time_unit=None)


def refuse_block_size(name: str, wanted: Wanted) -> None:
    """Raise TraceError if a block size is wanted of a format without hash ids."""
    if wanted.block_size is not None:
        raise TraceError(f"block_size: {name} has no hash ids; leave it out")
