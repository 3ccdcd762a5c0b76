"""Mooncake traces, JSONL: milliseconds, and hash ids of prompt blocks of 512 tokens.

A hash id stands for its block and everything before it. Other block sizes are found by trying
which one fits the lengths (LLMServingSim's traces are written so, with blocks of 16). Source:
github.com/kvcache-ai/Mooncake, FAST25-release/traces.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from traces.columns import ColumnNames
from traces.files import Head, InputFile
from traces.formats.base import Chunk, Part, Plan, Wanted
from traces.hash_blocks import BlockIds, guess_blocks
from traces.json_rows import Record, RecordColumns, head_records, read_jsonl, score_jsonl

NAMES = ColumnNames(("timestamp", "input_length", "output_length"), ("hash_ids",))
USUAL_BLOCK_SIZE = 512


class MooncakeFormat:
    """Milliseconds, lengths and hash ids; hash_ids may be left out."""

    name = "mooncake"
    summary = "JSONL with timestamp (ms), input_length, output_length[, hash_ids]"
    place_word = "line"

    def score(self, head: Head) -> float:
        """Share of the required keys that the first line has."""
        return score_jsonl(NAMES, head)

    def plan(self, head: Head, wanted: Wanted) -> Plan:
        """Milliseconds, and the block size that fits the first lines."""
        size, full_only = guess_blocks(
            head_records(head), "hash_ids", "input_length", USUAL_BLOCK_SIZE, wanted.block_size
        )
        return Plan(wanted.time_unit or "ms", size, full_blocks_only=full_only)

    def read(self, file: InputFile, part: Part) -> Iterator[Chunk]:
        """Rows in file order."""
        size = part.plan.block_size or USUAL_BLOCK_SIZE
        blocks = BlockIds("hash_ids", "input_length", size, part.plan.full_blocks_only)
        return read_jsonl(file, NAMES, part, partial(_typed, blocks))


def _typed(blocks: BlockIds, records: Sequence[Record]) -> Chunk:
    columns = RecordColumns(records)
    return Chunk(
        rows=columns.rows,
        places=columns.places,
        times=columns.seconds("timestamp", "a finite number of milliseconds >= 0"),
        num_prompt_tokens=columns.integers("input_length"),
        num_output_tokens=columns.integers("output_length"),
        prompts=blocks.table(records),
    )
