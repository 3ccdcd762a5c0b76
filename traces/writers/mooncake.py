"""Mooncake's JSONL: milliseconds, and hash ids of prompt blocks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from traces.prompt_table import PromptTable
from traces.request import Prompt
from traces.trace import Trace
from traces.writers.losses import lost_columns

_USUAL_BLOCK_SIZE = 512


class Mooncake:
    """Blocks of the size that the trace was recorded with, or 512."""

    name = "mooncake"

    def losses(self, trace: Trace) -> list[str]:
        """Times finer than a float of milliseconds holds, and segments that are no blocks."""
        lost = lost_columns(trace, ("prompts",))
        if trace.arrival_s[0] != 0:
            lost.append("the time before the first arrival")
        if not np.array_equal(_milliseconds(trace) / 1_000, trace.arrival_s):
            lost.append("arrival times to the last bit")
        if trace.prompts is not None and not _are_blocks(trace, trace.prompts):
            size = _block_size(trace)
            lost.append(f"prompt segments that are not blocks of {size} tokens with integer ids")
        return lost

    def write(self, trace: Trace, path: Path) -> None:
        """One object a request; other segments, if they may be lost, become blocks."""
        prompts: Any = trace.prompts
        if prompts is None:
            hash_ids: list[list[int]] = [[] for _ in range(len(trace))]
        elif _are_blocks(trace, prompts):
            hash_ids = [[int(segment_id) for segment_id, _ in prompt] for prompt in prompts]
        else:
            hash_ids = _numbered_blocks(prompts, _block_size(trace))
        columns = zip(
            _milliseconds(trace).tolist(),
            trace.num_prompt_tokens.tolist(),
            trace.num_output_tokens.tolist(),
            hash_ids,
            strict=True,
        )
        with path.open("w", encoding="utf-8", newline="") as file:
            for time, prompt, output, ids in columns:
                whole = int(time) if time == int(time) else time
                record = {"timestamp": whole, "input_length": prompt, "output_length": output}
                file.write(json.dumps(record | ({"hash_ids": ids} if ids else {})) + "\n")


def _block_size(trace: Trace) -> int:
    return trace.source.block_size or _USUAL_BLOCK_SIZE


def _milliseconds(trace: Trace) -> Any:
    """The number whose thousandth is nearest; whole where that is exact."""
    times = trace.arrival_s * 1_000
    whole = np.rint(times)
    return np.where(whole / 1_000 == trace.arrival_s, whole, times)


def _are_blocks(trace: Trace, table: PromptTable) -> bool:
    """Whether every prompt is full blocks and perhaps a last, shorter one, with integer ids."""
    size = _block_size(trace)
    if table.is_text.any():
        return False
    is_last = np.zeros(len(table.ids), dtype=bool)
    is_last[table.offsets[1:][table.counts > 0] - 1] = True
    return bool(np.all(np.where(is_last, table.lengths <= size, table.lengths == size)))


def _numbered_blocks(prompts: PromptTable, size: int) -> list[list[int]]:
    """Blocks numbered by all that is before their end; sharing within a block is lost."""
    pieces: dict[tuple[int, int, int | str], int] = {}
    blocks: dict[tuple[int, int], int] = {}
    return [_block_ids(prompt, size, pieces, blocks) for prompt in prompts]


def _block_ids(
    prompt: Prompt,
    size: int,
    pieces: dict[tuple[int, int, int | str], int],
    blocks: dict[tuple[int, int], int],
) -> list[int]:
    ids, before, start = [], (-1, 0), 0
    length = sum(tokens for _, tokens in prompt)
    for segment_id, tokens in prompt:
        number = pieces.setdefault((*before, segment_id), len(pieces))
        first_end = (start // size + 1) * size
        ends = [*range(first_end, start + tokens + 1, size)]
        if start + tokens == length and length % size:
            ends.append(length)
        ids += [blocks.setdefault((number, end - start), len(blocks)) for end in ends]
        before, start = (number, tokens), start + tokens
    return ids
