"""Qwen-Bailian traces, JSONL: seconds, hash ids of blocks of 16 tokens, turns chained by chat id.

A row's parent is the row with its parent_chat_id; rows of one chain are one session, named after
its first chat id. Think times are not recorded. No full file was at hand: read as documented at
github.com/alibaba-edu/qwen-bailian-usagetraces-anon.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from traces.cells import INTEGER_RIGHT
from traces.columns import ColumnNames
from traces.files import Head, InputFile
from traces.formats.base import Chunk, Part, Plan, Wanted
from traces.hash_blocks import BlockIds, guess_blocks
from traces.json_rows import Record, RecordColumns, head_records, read_jsonl, score_jsonl
from traces.labels import Labels
from traces.request import NO_PARENT

_NAMES = ColumnNames(
    ("chat_id", "parent_chat_id", "timestamp", "input_length", "output_length", "hash_ids"),
    ("turn", "type"),
)
_USUAL_BLOCK_SIZE = 16
_ROOT = -1


class QwenFormat:
    """Seconds, lengths, hash ids and chains of turns."""

    name = "qwen"
    summary = "JSONL with chat_id, parent_chat_id, timestamp (s), ..., hash_ids"
    place_word = "line"

    def score(self, head: Head) -> float:
        """Share of the required keys that the first line has."""
        return score_jsonl(_NAMES, head)

    def plan(self, head: Head, wanted: Wanted) -> Plan:
        """Seconds, and the block size that fits the first lines."""
        size, full_only = guess_blocks(
            head_records(head), "hash_ids", "input_length", _USUAL_BLOCK_SIZE, wanted.block_size
        )
        return Plan(wanted.time_unit or "s", size, full_blocks_only=full_only)

    def read(self, file: InputFile, part: Part) -> Iterator[Chunk]:
        """Rows in file order."""
        size = part.plan.block_size or _USUAL_BLOCK_SIZE
        blocks = BlockIds("hash_ids", "input_length", size, part.plan.full_blocks_only)
        return read_jsonl(file, _NAMES, part, _Chats(blocks).typed)


class _Chats:
    """Remembers row and session of every chat id."""

    def __init__(self, blocks: BlockIds) -> None:
        self._blocks = blocks
        self._rows: dict[int, int] = {}
        self._sessions: dict[int, int] = {}

    def typed(self, records: Sequence[Record]) -> Chunk:
        columns = RecordColumns(records)
        chats = columns.integers("chat_id", INTEGER_RIGHT)
        parents = columns.integers("parent_chat_id", INTEGER_RIGHT)
        prompt_tokens = columns.integers("input_length")
        output_tokens = columns.integers("output_length")
        chunk_columns = {
            "rows": columns.rows,
            "places": columns.places,
            "times": columns.seconds("timestamp"),
            "num_prompt_tokens": prompt_tokens,
            "num_output_tokens": output_tokens,
            "prompts": self._blocks.table(records),
        }
        # Only now, when no row can be refused any more, are the chats remembered.
        sessions, parent_rows = self._chained(columns.rows.tolist(), chats, parents)
        return Chunk(
            **chunk_columns,  # type: ignore[arg-type]
            session_id=Labels.from_values(map(str, sessions)),
            parent_id=np.array(parent_rows, dtype=np.int64),
        )

    def _chained(
        self, rows: list[int], chats: np.ndarray, parents: np.ndarray
    ) -> tuple[list[int], list[int]]:
        sessions, parent_rows = [], []
        for row, chat, parent in zip(rows, chats.tolist(), parents.tolist(), strict=True):
            session = chat if parent == _ROOT else self._sessions.get(parent, parent)
            parent_rows.append(self._rows.get(parent, NO_PARENT))
            sessions.append(session)
            self._sessions[chat] = session
            self._rows[chat] = row
        return sessions, parent_rows
