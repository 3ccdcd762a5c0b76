"""Scheduler decisions to the decoder's batches: tokens, block tables, slots."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from calibration.bench.step_batch import IntArray, Piece, StepBatch, pack
from sim.scheduler.output import SchedulerOutput
from sim.scheduler.request import RequestId


@dataclass(slots=True)
class _Row:
    """A request on the model's side: its tokens, how many are known, and its blocks in order."""

    tokens: IntArray
    num_tokens: int
    blocks: IntArray
    num_blocks: int = 0
    num_computed: int = 0

    def append_blocks(self, block_ids: list[int]) -> None:
        end = self.num_blocks + len(block_ids)
        if end > len(self.blocks):
            self.blocks = np.concatenate([self.blocks, np.zeros_like(self.blocks)])
        self.blocks[self.num_blocks : end] = block_ids
        self.num_blocks = end

    def piece(self, num_new: int, block_size: int, *, needs_logits: bool) -> Piece:
        start, end = self.num_computed, self.num_computed + num_new
        self.num_computed = end
        used = -(-end // block_size)
        return Piece(self.tokens[start:end], start, self.blocks[:used], needs_logits)


class InputBatch:
    """What the worker remembers between steps, updated by what the scheduler says.

    Tokens of a prompt are handed in once; output tokens come back through `append`.
    """

    def __init__(self, block_size: int, max_model_len: int) -> None:
        self._block_size = block_size
        self._max_model_len = max_model_len
        self._max_blocks = -(-max_model_len // block_size)
        self._rows: dict[RequestId, _Row] = {}

    def add(self, request_id: RequestId, prompt: IntArray) -> None:
        """Know a request and its prompt, before it is first scheduled."""
        tokens: IntArray = np.zeros(self._max_model_len + 1, dtype=np.int64)
        tokens[: len(prompt)] = prompt
        blocks: IntArray = np.zeros(self._max_blocks, dtype=np.int64)
        self._rows[request_id] = _Row(tokens, len(prompt), blocks)

    def build(self, output: SchedulerOutput) -> tuple[StepBatch, list[RequestId]]:
        """Return the batch of a step, and the requests that get a token, in its order."""
        self._update_blocks(output)
        wanted = set(output.sampling_req_ids)
        counts = output.num_scheduled_tokens
        # A stable sort: pieces of one token first, as the kernels take them.
        order = sorted(counts, key=lambda request_id: counts[request_id] > 1)
        pieces = [
            self._rows[request_id].piece(
                counts[request_id], self._block_size, needs_logits=request_id in wanted
            )
            for request_id in order
        ]
        sampling = [request_id for request_id in order if request_id in wanted]
        return pack(pieces, self._block_size), sampling

    def append(self, request_ids: Iterable[RequestId], token_ids: Iterable[int]) -> None:
        """Give each request its new token."""
        for request_id, token in zip(request_ids, token_ids, strict=True):
            row = self._rows[request_id]
            row.tokens[row.num_tokens] = token
            row.num_tokens += 1

    def pop(self, request_id: RequestId) -> list[int]:
        """Forget a request; returns all its tokens."""
        row = self._rows.pop(request_id)
        return [int(token) for token in row.tokens[: row.num_tokens]]

    def _update_blocks(self, output: SchedulerOutput) -> None:
        for new in output.scheduled_new_reqs:
            row = self._rows[new.request_id]
            row.num_computed = new.num_computed_tokens
            row.append_blocks(new.block_ids)
        cached = output.scheduled_cached_reqs
        for request_id, block_ids, computed in zip(
            cached.req_ids, cached.new_block_ids, cached.num_computed_tokens, strict=True
        ):
            row = self._rows[request_id]
            if request_id in cached.resumed_req_ids:
                row.num_blocks = 0
            row.num_computed = computed
            if block_ids:
                row.append_blocks(block_ids)
