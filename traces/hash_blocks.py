"""Hash ids of prompt blocks as segments: one id, one block, the last one partial."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from traces.json_rows import Record
from traces.prompt_table import PromptTable

_SIZES = (512, 16, 32, 64, 128, 256, 1024, 2048, 4096)
_IDS_RIGHT = "a list of whole numbers that fit 64 bits"
_INT64 = range(-(2**63), 2**63)
_WRONG = "hash_ids do not fit input_length"


@dataclass(frozen=True, slots=True)
class BlockIds:
    """How a format writes the blocks of its prompts.

    Attributes:
        ids_key: the key of the list of ids; a record without it has content of its own.
        length_key: the key of the prompt's length.
        block_size: tokens of a block.
        full_only: whether only full blocks have ids; what is left is then content of its own.
        may_lack_more: whether ids may end even earlier (some of WEKA's do).
        first_id: added to every id, so that ids that mean something in one file only stay apart.
    """

    ids_key: str
    length_key: str
    block_size: int
    full_only: bool = False
    may_lack_more: bool = False
    first_id: int = 0

    def table(self, records: Sequence[Record]) -> PromptTable:
        """The prompts of the records.

        Raises:
            RowError: ids that are none, or more or fewer than the prompt's length allows.
        """
        counts, ids, lengths, is_text = [0], [], [], []
        names: list[str] = []
        for record in records:
            own = self._checked(record)
            num_tokens = record.values[self.length_key]
            full, rest = divmod(num_tokens, self.block_size)
            ids += [self.first_id + each for each in own]
            lengths += [self.block_size] * min(len(own), full)
            lengths += [rest] * (len(own) - full)
            is_text += [False] * len(own)
            lacking = num_tokens - len(own) * self.block_size
            if lacking > 0 and own:
                ids.append(len(names))
                names.append(f"rest:{record.row}")
                lengths.append(lacking)
                is_text.append(True)
            counts.append(len(ids))
        return PromptTable(counts, ids, lengths, is_text, names)

    def _checked(self, record: Record) -> list[int]:
        ids: Any = record.values.get(self.ids_key)
        if ids is None:
            return []
        if not isinstance(ids, list) or set(map(type, ids)) - {int}:
            raise record.bad(self.ids_key, ids, _IDS_RIGHT)
        if ids and not (min(ids) in _INT64 and max(ids) in _INT64):
            raise record.bad(self.ids_key, ids, _IDS_RIGHT)
        num_tokens = record.values[self.length_key]
        most = num_blocks(num_tokens, self.block_size, full_only=self.full_only)
        fewest = 0 if self.may_lack_more else most
        if not fewest <= len(ids) <= most:
            kind = "full blocks" if self.full_only else "blocks"
            what = (
                f"{self.ids_key} has {len(ids)} ids, but {self.length_key} {num_tokens} has {most} "
                f"{kind} of {self.block_size} tokens; set block_size if blocks are of another size"
            )
            raise record.wrong(what, _WRONG)
        return ids


def num_blocks(num_tokens: int, block_size: int, *, full_only: bool) -> int:
    """How many blocks of a prompt have ids."""
    return num_tokens // block_size if full_only else -(-num_tokens // block_size)


def guess_blocks(
    records: Iterable[dict[str, Any]],
    ids_key: str,
    length_key: str,
    usual: int,
    wanted: int | None,
) -> tuple[int, bool]:
    """The block size that fits most of the records, and whether only full blocks have ids.

    `usual` with partial blocks if it fits as many as any; `wanted` leaves the second to guess.
    """
    pairs = [
        (len(ids), length)
        for record in records
        if isinstance(ids := record.get(ids_key), list)
        and type(length := record.get(length_key)) is int
    ]
    sizes = [wanted] if wanted else [usual, *(size for size in _SIZES if size != usual)]
    choices = [(size, full_only) for full_only in (False, True) for size in sizes]
    fits = [
        sum(num_blocks(length, size, full_only=full_only) == num for num, length in pairs)
        for size, full_only in choices
    ]
    return choices[int(np.argmax(fits))]
