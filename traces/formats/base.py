"""What a format is: something that claims a file's beginning and reads it in chunks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from traces.arrays import FloatArray, IntArray
from traces.files import Head, InputFile
from traces.request import Prompt

ROWS_PER_CHUNK = 65_536


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some rows of a file, in file order, each cell checked but zero counts still in.

    Attributes:
        places: line (text) or row (Parquet) of each row, from 1.
        times: in ticks of the format's `ticks_per_s`; integers or floats, any origin.
        num_prompt_tokens: 0 to `MAX_NUM_TOKENS`.
        num_output_tokens: 0 to `MAX_NUM_TOKENS`.
        priority: None where the file has no such column.
        request_id: None where the file has no such column.
        prompts: None where the file has no such column; else () for content of its own.
    """

    places: IntArray
    times: IntArray | FloatArray
    num_prompt_tokens: IntArray
    num_output_tokens: IntArray
    priority: IntArray | None = None
    request_id: IntArray | None = None
    prompts: Sequence[Prompt] | None = None


class Format(Protocol):
    """One recorded format. Add one by writing it in its own file and listing it in `registry`."""

    @property
    def name(self) -> str:
        """What a user writes to choose it."""

    @property
    def summary(self) -> str:
        """Its columns or keys in a few words, for error messages and help."""

    @property
    def ticks_per_s(self) -> int:
        """Units of `Chunk.times` in a second."""

    @property
    def place_word(self) -> str:
        """What `Chunk.places` counts: "line" or "row"."""

    def score(self, head: Head) -> float:
        """How surely the file is of this format: 1 certain, 0 certainly not.

        Between: the share of the needed columns that are there, misspelt ones counted a little
        less, so that a file with a slip still reaches the format that can name the slip.
        """

    def read(self, file: InputFile) -> Iterator[Chunk]:
        """The rows in file order.

        Raises:
            TraceError: for the first bad header or cell.
        """

    def start_text(self, ticks: float) -> str:
        """A time of this format as its user would write it."""
