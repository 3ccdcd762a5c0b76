"""Transforms of traces whose requests follow one another in sessions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from traces.arrays import IntArray
from traces.request import NO_PARENT, Prompt, Segment, output_segment
from traces.trace import Trace
from traces.trace_checks import rows_of


def parent_rows(trace: Trace) -> IntArray:
    """The row of each request's parent; -1 for none."""
    if trace.parent_id is None:
        return np.full(len(trace), NO_PARENT, dtype=np.int64)
    return rows_of(trace.request_id, trace.parent_id)


def session_numbers(trace: Trace) -> IntArray:
    """A number for the session of each request, in order of first arrival.

    Requests with equal session_id are of one session; those without one are of their parent's,
    and without a parent each is a session of its own.
    """
    labels = None if trace.session_id is None else trace.session_id.codes.tolist()
    by_label: dict[int, int] = {}
    numbers: list[int] = []
    num_sessions = 0
    for row, parent in enumerate(parent_rows(trace).tolist()):
        label = -1 if labels is None else labels[row]
        if label >= 0 and label in by_label:
            number = by_label[label]
        elif label < 0 and parent >= 0:
            number = numbers[parent]
        else:
            number = num_sessions
            num_sessions += 1
        if label >= 0:
            by_label[label] = number
        numbers.append(number)
    return np.array(numbers, dtype=np.int64)


def join_outputs(trace: Trace) -> Trace:
    """Put what each parent generated into the prompts that go on from it.

    Recorded hash ids know prompts only. Where a child's prompt begins with all full blocks of its
    parent's, and is long enough to hold the parent's output too, its tokens after the parent's
    prompt become the segment `out:<parent>`; what follows stays as recorded. Where it goes another
    way, it keeps the common beginning and its own rest. So a prefix cache finds the KV entries of
    earlier turns, prompts and outputs. A trace that has such segments already is left as it is,
    and so is one without parents or prompts.
    """
    prompts = trace.prompts
    if trace.parent_id is None or prompts is None:
        return trace
    if any(name.startswith("out:") for name in prompts.names):
        return trace
    joiner = _Joiner(trace)
    joined = [joiner.prompt(row, parent) for row, parent in enumerate(parent_rows(trace).tolist())]
    return trace.with_columns("join_outputs()", prompts=joined)


class _Joiner:
    """Makes the new prompts one after another; a parent's is made before its children's."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._recorded = list(trace.prompts or ())
        self._block_size = trace.source.block_size or 1
        self._joined: list[Prompt] = []

    def prompt(self, row: int, parent: int) -> Prompt:
        recorded = self._recorded[row]
        if parent < 0 or not recorded or not self._recorded[parent]:
            joined = recorded
        else:
            joined = self._continued(row, parent)
        self._joined.append(joined)
        return joined

    def _continued(self, row: int, parent: int) -> Prompt:
        trace = self._trace
        length, recorded = int(trace.num_prompt_tokens[row]), self._recorded[row]
        parent_length = int(trace.num_prompt_tokens[parent])
        output = int(trace.num_output_tokens[parent])
        common = _common_tokens(self._recorded[parent], recorded)
        goes_on = common >= parent_length - parent_length % self._block_size
        if goes_on and length >= parent_length + output:
            segment = (output_segment(int(trace.request_id[parent])), output)
            rest = _after(recorded, parent_length + output)
            return (*self._joined[parent], segment, *rest)
        return (*_first(self._joined[parent], common), *_after(recorded, common))


def _common_tokens(one: Sequence[Segment], other: Sequence[Segment]) -> int:
    """Leading tokens that two prompts share."""
    common = 0
    for (id_one, length_one), (id_other, length_other) in zip(one, other, strict=False):
        if id_one != id_other:
            break
        common += min(length_one, length_other)
        if length_one != length_other:
            break
    return common


def _first(prompt: Sequence[Segment], num_tokens: int) -> list[Segment]:
    """The first tokens of a prompt."""
    kept: list[Segment] = []
    for segment_id, length in prompt:
        if num_tokens <= 0:
            break
        kept.append((segment_id, min(length, num_tokens)))
        num_tokens -= length
    return kept


def _after(prompt: Sequence[Segment], num_tokens: int) -> list[Segment]:
    """A prompt without its first tokens; the end of a segment is content by another name."""
    kept: list[Segment] = []
    for segment_id, length in prompt:
        if num_tokens >= length:
            num_tokens -= length
        elif num_tokens > 0:
            kept.append((f"{segment_id}@{num_tokens}", length - num_tokens))
            num_tokens = 0
        else:
            kept.append((segment_id, length))
    return kept
