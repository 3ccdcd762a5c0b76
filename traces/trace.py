"""A trace: requests in the order in which they arrive, as read-only columns."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from traces.arrays import FloatArray, IntArray
from traces.errors import TraceError, shown
from traces.request import MAX_NUM_TOKENS, Prompt, RequestSpec
from traces.source import TraceSource

_INT64 = range(-(2**63), 2**63)
_ITERATED_AT_ONCE = 65_536


@dataclass(frozen=True, eq=False)
class Trace:
    """Requests sorted by (arrival_s, request_id), checked, and never changed.

    All columns have one element a request. Make one with `from_columns` (which sorts) or
    `from_requests`; the plain constructor demands columns that are sorted already.

    Attributes:
        request_id: unique, at least 0.
        arrival_s: seconds from the trace's zero, finite, at least 0.
        num_prompt_tokens: 1 to `MAX_NUM_TOKENS`.
        num_output_tokens: 1 to `MAX_NUM_TOKENS`.
        priority: smaller is more urgent.
        prompts: segments of each prompt; None if every prompt is content of its own.
        source: where the trace came from.

    Raises:
        TraceError: no request, or a value or length that breaks the above.
    """

    request_id: IntArray
    arrival_s: FloatArray
    num_prompt_tokens: IntArray
    num_output_tokens: IntArray
    priority: IntArray
    prompts: tuple[Prompt, ...] | None = None
    source: TraceSource = field(default_factory=TraceSource)

    def __post_init__(self) -> None:
        for name in ("request_id", "num_prompt_tokens", "num_output_tokens", "priority"):
            object.__setattr__(self, name, _frozen(_as_ints(name, getattr(self, name))))
        object.__setattr__(self, "arrival_s", _frozen(_as_floats("arrival_s", self.arrival_s)))
        object.__setattr__(self, "prompts", _as_prompts(self.prompts))
        _check_lengths(self)
        _check_values(self)
        _check_order(self)
        _check_prompts(self)

    @classmethod
    def from_columns(
        cls,
        arrival_s: npt.ArrayLike,
        num_prompt_tokens: npt.ArrayLike,
        num_output_tokens: npt.ArrayLike,
        *,
        priority: npt.ArrayLike | None = None,
        request_id: npt.ArrayLike | None = None,
        prompts: Sequence[Prompt] | None = None,
        source: TraceSource | None = None,
    ) -> Trace:
        """Trace of columns in any order; ids default to the order given, priorities to 0.

        Raises:
            TraceError: as the class says.
        """
        arrivals = _as_floats("arrival_s", arrival_s)
        ids = np.arange(len(arrivals)) if request_id is None else _as_ints("request_id", request_id)
        levels = np.zeros(len(arrivals)) if priority is None else priority
        columns: dict[str, Any] = {
            "request_id": ids,
            "arrival_s": arrivals,
            "num_prompt_tokens": _as_ints("num_prompt_tokens", num_prompt_tokens),
            "num_output_tokens": _as_ints("num_output_tokens", num_output_tokens),
            "priority": _as_ints("priority", levels),
        }
        _check_same_length(columns, prompts)
        order = np.lexsort((ids, arrivals))
        return cls(
            **{name: column[order] for name, column in columns.items()},
            prompts=_taken(prompts, order),
            source=source or TraceSource(num_rows_read=len(arrivals)),
        )

    @classmethod
    def from_requests(
        cls, requests: Iterable[RequestSpec], source: TraceSource | None = None
    ) -> Trace:
        """Trace of requests in any order.

        Raises:
            TraceError: as the class says.
        """
        rows = list(requests)
        return cls.from_columns(
            [row.arrival_s for row in rows],
            [row.num_prompt_tokens for row in rows],
            [row.num_output_tokens for row in rows],
            priority=[row.priority for row in rows],
            request_id=[row.request_id for row in rows],
            prompts=[row.prompt for row in rows],
            source=source,
        )

    def __len__(self) -> int:
        return len(self.request_id)

    def __getitem__(self, index: int) -> RequestSpec:
        return RequestSpec(
            request_id=int(self.request_id[index]),
            arrival_s=float(self.arrival_s[index]),
            num_prompt_tokens=int(self.num_prompt_tokens[index]),
            num_output_tokens=int(self.num_output_tokens[index]),
            prompt=() if self.prompts is None else self.prompts[index],
            priority=int(self.priority[index]),
        )

    def __iter__(self) -> Iterator[RequestSpec]:
        for start in range(0, len(self), _ITERATED_AT_ONCE):
            yield from self._requests(slice(start, start + _ITERATED_AT_ONCE))

    def __reduce__(self) -> tuple[type[Trace], tuple[Any, ...]]:
        # Through the constructor: plain unpickling would give writable arrays.
        return Trace, (*self._columns().values(), self.prompts, self.source)

    @property
    def duration_s(self) -> float:
        """Seconds from the first arrival to the last."""
        return float(self.arrival_s[-1] - self.arrival_s[0])

    @cached_property
    def content_sha256(self) -> str:
        """Digest of the columns: equal for traces of equal requests, whatever their source."""
        digest = hashlib.sha256(b"headway trace 1")
        for column in self._columns().values():
            digest.update(column.astype(column.dtype.newbyteorder("<")).tobytes())
        digest.update(json.dumps(self.prompts, separators=(",", ":")).encode())
        return digest.hexdigest()

    def take(self, indices: npt.ArrayLike, what: str) -> Trace:
        """The requests at `indices` (ids kept), with the transform `what` noted in the source."""
        order = np.asarray(indices, dtype=np.int64)
        columns = {name: column[order] for name, column in self._columns().items()}
        return Trace.from_columns(
            **columns, prompts=_taken(self.prompts, order), source=self.source.transformed(what)
        )

    def with_arrivals(self, arrival_s: npt.ArrayLike, what: str) -> Trace:
        """The same requests at other times, with the transform `what` noted in the source."""
        columns = self._columns() | {"arrival_s": np.asarray(arrival_s, dtype=np.float64)}
        return Trace.from_columns(
            **columns, prompts=self.prompts, source=self.source.transformed(what)
        )

    def with_source(self, **changes: Any) -> Trace:
        """This trace with fields of its source changed."""
        return replace(self, source=replace(self.source, **changes))

    def _requests(self, rows: slice) -> Iterator[RequestSpec]:
        ids = self.request_id[rows].tolist()
        prompts = itertools.repeat((), len(ids)) if self.prompts is None else self.prompts[rows]
        return map(
            RequestSpec,
            ids,
            self.arrival_s[rows].tolist(),
            self.num_prompt_tokens[rows].tolist(),
            self.num_output_tokens[rows].tolist(),
            prompts,
            self.priority[rows].tolist(),
        )

    def _columns(self) -> dict[str, Any]:
        return {
            "request_id": self.request_id,
            "arrival_s": self.arrival_s,
            "num_prompt_tokens": self.num_prompt_tokens,
            "num_output_tokens": self.num_output_tokens,
            "priority": self.priority,
        }


def _as_floats(name: str, values: npt.ArrayLike) -> FloatArray:
    try:
        # Adding 0.0 turns -0.0 into 0.0, so that equal traces have equal bytes.
        array = np.asarray(values, dtype=np.float64) + 0.0
    except (TypeError, ValueError) as error:
        raise TraceError(f"{name} must be a column of numbers: {error}") from None
    _check_flat(name, array)
    return array


def _check_flat(name: str, array: npt.NDArray[Any]) -> None:
    if array.ndim != 1:
        raise TraceError(f"{name} must be a flat column, but has {array.ndim} dimensions")


def _as_ints(name: str, values: npt.ArrayLike) -> IntArray:
    """`values` as int64 without loss; fractions, NaN and text raise TraceError."""
    try:
        array = np.asarray(values)
    except (TypeError, ValueError) as error:
        raise TraceError(f"{name} must be a column of whole numbers: {error}") from None
    _check_flat(name, array)
    if array.size and array.dtype.kind not in "iuf":
        raise TraceError(f"{name} must be a column of 64-bit integers, not of {array.dtype}")
    with np.errstate(invalid="ignore"):
        whole = array.astype(np.int64)
    wrong = np.flatnonzero(whole != array)
    if wrong.size:
        raise TraceError(
            f"{name}, row {wrong[0]}: {array[wrong[0]]} is wrong; it must be a whole number"
        )
    return whole


def _as_prompts(prompts: Sequence[Prompt] | None) -> tuple[Prompt, ...] | None:
    """Prompts as a tuple; None if all are empty, so that equal traces look alike."""
    if prompts is None or not any(prompts):
        return None
    return tuple(prompts)


def _frozen(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A copy over immutable bytes: `setflags` can't make it writable again."""
    return np.frombuffer(array.tobytes(), dtype=array.dtype)


def _taken(prompts: Sequence[Prompt] | None, order: IntArray) -> tuple[Prompt, ...] | None:
    return None if prompts is None else tuple(prompts[index] for index in order)


def _check_same_length(columns: dict[str, Any], prompts: Sequence[Prompt] | None) -> None:
    lengths = {name: len(column) for name, column in columns.items()}
    if prompts is not None:
        lengths["prompts"] = len(prompts)
    if len(set(lengths.values())) > 1:
        raise TraceError(f"columns of a trace must be equally long, but have {lengths} rows")


def _check_lengths(trace: Trace) -> None:
    _check_same_length(trace._columns(), trace.prompts)
    if len(trace) == 0:
        raise TraceError(f"{trace.source.name}: no request; a trace has at least one")


def _check_values(trace: Trace) -> None:
    arrival = trace.arrival_s
    _all_good(trace, "arrival_s", np.isfinite(arrival) & (arrival >= 0), "finite and >= 0")
    _all_good(trace, "request_id", trace.request_id >= 0, ">= 0")
    for name in ("num_prompt_tokens", "num_output_tokens"):
        column = getattr(trace, name)
        good = (column >= 1) & (column <= MAX_NUM_TOKENS)
        _all_good(trace, name, good, f"from 1 to {MAX_NUM_TOKENS}")


def _all_good(trace: Trace, name: str, good: npt.NDArray[np.bool_], right: str) -> None:
    wrong = np.flatnonzero(~good)
    if wrong.size:
        value = getattr(trace, name)[wrong[0]]
        request_id = trace.request_id[wrong[0]]
        raise TraceError(f"request {request_id}, {name}: {value} is wrong; it must be {right}")


def _check_order(trace: Trace) -> None:
    ids = trace.request_id
    ordered = np.sort(ids)
    repeated = np.flatnonzero(ordered[1:] == ordered[:-1])
    if repeated.size:
        raise TraceError(f"request_id {ordered[repeated[0]]} occurs twice; ids must be unique")
    gaps = np.diff(trace.arrival_s)
    if not np.all((gaps > 0) | ((gaps == 0) & (np.diff(ids) > 0))):
        raise TraceError("requests must be sorted by (arrival_s, request_id)")


def _check_prompts(trace: Trace) -> None:
    if trace.prompts is None:
        return
    for index, prompt in enumerate(trace.prompts):
        if prompt:
            what = prompt_fault(prompt, int(trace.num_prompt_tokens[index]))
            if what:
                raise TraceError(f"request {trace.request_id[index]}, prompt: {what}")


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
        return value.isascii() or _is_unicode(value)
    return type(value) is int and value in _INT64


def _is_unicode(text: str) -> bool:
    """Whether `text` can be written: JSON may hold half a surrogate pair, which can't."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
