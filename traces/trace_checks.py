"""What a trace must be: the checks of its columns, each with a sentence for the user."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from traces.errors import TraceError, shown
from traces.prompt_table import PromptTable
from traces.request import MAX_NUM_TOKENS, NO_PARENT, Prompt

if TYPE_CHECKING:
    from traces.trace import Trace

_INT64 = range(-(2**63), 2**63)


def check_lengths(columns: dict[str, Any], name: str) -> None:
    """All columns as long as each other, and not empty."""
    check_same_length(columns)
    if len(columns["request_id"]) == 0:
        raise TraceError(f"{name}: no request; a trace has at least one")


def check_same_length(columns: dict[str, Any]) -> None:
    """All columns (None: absent) as long as each other."""
    lengths = {name: len(column) for name, column in columns.items() if column is not None}
    if len(set(lengths.values())) > 1:
        raise TraceError(f"columns of a trace must be equally long, but have {lengths} rows")


def check_values(trace: Trace) -> None:
    """Every value of the plain columns in its range."""
    arrival = trace.arrival_s
    _all_good(trace, "arrival_s", np.isfinite(arrival) & (arrival >= 0), "finite and >= 0")
    _all_good(trace, "request_id", trace.request_id >= 0, ">= 0")
    for name in ("num_prompt_tokens", "num_output_tokens"):
        column = getattr(trace, name)
        good = (column >= 1) & (column <= MAX_NUM_TOKENS)
        _all_good(trace, name, good, f"from 1 to {MAX_NUM_TOKENS}")
    if trace.lora_id is not None:
        _all_good(trace, "lora_id", trace.lora_id >= 0, ">= 0")
    if trace.think_time_s is not None:
        think = trace.think_time_s
        good = np.isnan(think) | (np.isfinite(think) & (think >= 0))
        _all_good(trace, "think_time_s", good, "finite and >= 0, or NaN")


def _all_good(trace: Trace, name: str, good: npt.NDArray[np.bool_], right: str) -> None:
    wrong = np.flatnonzero(~good)
    if wrong.size:
        value = getattr(trace, name)[wrong[0]]
        request_id = trace.request_id[wrong[0]]
        raise TraceError(f"request {request_id}, {name}: {value} is wrong; it must be {right}")


def check_order(trace: Trace) -> None:
    """Unique ids; requests sorted by (arrival_s, request_id)."""
    ids = trace.request_id
    if not bool(np.all(ids[1:] > ids[:-1])):
        ordered = np.sort(ids)
        repeated = np.flatnonzero(ordered[1:] == ordered[:-1])
        if repeated.size:
            raise TraceError(f"request_id {ordered[repeated[0]]} occurs twice; ids must be unique")
    if not is_sorted(trace.arrival_s, ids):
        raise TraceError("requests must be sorted by (arrival_s, request_id)")


def is_sorted(arrival_s: npt.NDArray[Any], ids: npt.NDArray[Any]) -> bool:
    """Whether requests are in the order of a trace: by arrival, then by id."""
    later, same = arrival_s[1:] > arrival_s[:-1], arrival_s[1:] == arrival_s[:-1]
    return bool(np.all(later | (same & (ids[1:] > ids[:-1]))))


def check_parents(trace: Trace) -> None:
    """A parent is a request before its child, so that chains end."""
    if trace.parent_id is None:
        return
    rows = rows_of(trace.request_id, trace.parent_id)
    has_one = trace.parent_id != NO_PARENT
    absent = np.flatnonzero(has_one & (rows < 0))
    if absent.size:
        where = f"request {trace.request_id[absent[0]]}, parent_id"
        raise TraceError(f"{where}: there is no request {trace.parent_id[absent[0]]}")
    late = np.flatnonzero(has_one & (rows >= np.arange(len(trace))))
    if late.size:
        where = f"request {trace.request_id[late[0]]}, parent_id"
        raise TraceError(
            f"{where}: {trace.parent_id[late[0]]} comes no earlier; a parent must arrive before"
        )


def rows_of(request_id: npt.NDArray[Any], wanted: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """The row of each wanted id; -1 where there is none."""
    order = np.argsort(request_id, kind="stable")
    place = np.minimum(np.searchsorted(request_id[order], wanted), len(order) - 1)
    return np.where(request_id[order[place]] == wanted, order[place], -1)


def check_prompt_table(trace: Trace, prompts: PromptTable) -> None:
    """Segments at least 1 long that sum to the prompt's length."""
    if len(prompts.lengths) and prompts.lengths.min() < 1:
        row = np.searchsorted(prompts.offsets, np.argmin(prompts.lengths), side="right") - 1
        raise _prompt_error(trace, int(row), prompts[int(row)])
    wrong = np.flatnonzero((prompts.counts > 0) & (prompts.num_tokens != trace.num_prompt_tokens))
    if wrong.size:
        raise _prompt_error(trace, int(wrong[0]), prompts[int(wrong[0])])


def check_prompts(trace: Trace, prompts: Any) -> None:
    """Prompts given as tuples: every one is well formed."""
    for index, prompt in enumerate(prompts):
        if prompt and prompt_fault(prompt, int(trace.num_prompt_tokens[index])):
            raise _prompt_error(trace, index, prompt)


def _prompt_error(trace: Trace, row: int, prompt: Prompt) -> TraceError:
    fault = prompt_fault(prompt, int(trace.num_prompt_tokens[row]))
    return TraceError(f"request {trace.request_id[row]}, prompt: {fault}")


def prompt_fault(prompt: Prompt, num_prompt_tokens: int) -> str | None:
    """What is wrong with the segments of a prompt of `num_prompt_tokens`; None if nothing is."""
    total = 0
    for segment in prompt:
        if not (isinstance(segment, tuple) and len(segment) == 2):
            return f"{shown(segment)} is wrong; a segment must be (segment_id, num_tokens)"
        segment_id, num_tokens = segment
        if not _is_segment_id(segment_id):
            return f"segment id {shown(segment_id)} is wrong; it must be a text or 64-bit integer"
        if type(num_tokens) is not int or num_tokens < 1:
            return f"segment length {shown(num_tokens)} is wrong; it must be a whole number >= 1"
        total += num_tokens
    if total != num_prompt_tokens:
        return f"segments hold {total} tokens, but num_prompt_tokens is {num_prompt_tokens}"
    return None


def _is_segment_id(value: object) -> bool:
    if isinstance(value, str):
        return value.isascii() or is_unicode(value)
    return type(value) is int and value in _INT64


def is_unicode(text: str) -> bool:
    """Whether `text` can be written: JSON may hold half a surrogate pair, which can't."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
