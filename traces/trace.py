"""A trace: requests in the order in which they arrive, as read-only columns."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from traces.arrays import FloatArray, IntArray
from traces.errors import TraceError
from traces.labels import Labels
from traces.prompt_table import PromptTable
from traces.request import NO_PARENT, Prompt, RequestSpec
from traces.source import TraceSource
from traces.spool import is_read_only_file
from traces.trace_checks import (
    check_lengths,
    check_order,
    check_parents,
    check_prompt_table,
    check_prompts,
    check_same_length,
    check_values,
    is_sorted,
)

_ITERATED_AT_ONCE = 65_536
_PLAIN = ("request_id", "arrival_s", "num_prompt_tokens", "num_output_tokens", "priority")
_OPTIONAL = ("prompts", "session_id", "parent_id", "think_time_s", "tenant", "lora_id")


@dataclass(frozen=True, eq=False)
class Trace:
    """Requests sorted by (arrival_s, request_id), checked, and never changed.

    All columns have one element a request. Make one with `from_columns` (which sorts) or
    `from_requests`; the plain constructor demands columns that are sorted already. An optional
    column in which nothing is said is None, so that equal traces look alike.

    Attributes:
        request_id: unique, at least 0.
        arrival_s: seconds from the trace's zero, finite, at least 0.
        num_prompt_tokens: 1 to `MAX_NUM_TOKENS`.
        num_output_tokens: 1 to `MAX_NUM_TOKENS`.
        priority: smaller is more urgent.
        prompts: segments of each prompt; None if every prompt is content of its own.
        source: where the trace came from.
        session_id: the session of each request; None if there are no sessions.
        parent_id: the request that each one follows, earlier in the trace; -1 for none.
        think_time_s: seconds from the parent's completion to the sending; NaN if not recorded.
        tenant: who sent each request.
        lora_id: the LoRA adapter of each request; 0 for the base model.

    Raises:
        TraceError: no request, or a value or length that breaks the above.
    """

    request_id: IntArray
    arrival_s: FloatArray
    num_prompt_tokens: IntArray
    num_output_tokens: IntArray
    priority: IntArray
    prompts: PromptTable | None = None
    source: TraceSource = field(default_factory=TraceSource)
    session_id: Labels | None = None
    parent_id: IntArray | None = None
    think_time_s: FloatArray | None = None
    tenant: Labels | None = None
    lora_id: IntArray | None = None

    def __post_init__(self) -> None:
        self._take_plain_columns()
        check_lengths(self.columns(), self.source.name)
        self._take_optional_columns()
        check_values(self)
        check_order(self)
        check_parents(self)
        self._take_prompts()

    def _take_plain_columns(self) -> None:
        for name in ("request_id", "num_prompt_tokens", "num_output_tokens", "priority"):
            object.__setattr__(self, name, _frozen(_as_ints(name, getattr(self, name))))
        object.__setattr__(self, "arrival_s", _frozen(_as_floats("arrival_s", self.arrival_s)))

    def _take_optional_columns(self) -> None:
        for name, default in (("parent_id", NO_PARENT), ("lora_id", 0)):
            if getattr(self, name) is not None:
                column = _frozen(_as_ints(name, getattr(self, name)))
                object.__setattr__(self, name, column if (column != default).any() else None)
        if self.think_time_s is not None:
            think = _frozen(_as_floats("think_time_s", self.think_time_s))
            object.__setattr__(self, "think_time_s", None if np.isnan(think).all() else think)
        for name in ("session_id", "tenant"):
            object.__setattr__(self, name, _as_labels(getattr(self, name)))

    def _take_prompts(self) -> None:
        given: Any = self.prompts
        if given is not None and not isinstance(given, PromptTable):
            check_prompts(self, given)
            given = PromptTable.from_prompts(given)
        elif given is not None:
            check_prompt_table(self, given)
        has_any = given is not None and len(given.ids) > 0
        object.__setattr__(self, "prompts", given if has_any else None)

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
        session_id: Labels | Iterable[str | None] | None = None,
        parent_id: npt.ArrayLike | None = None,
        think_time_s: npt.ArrayLike | None = None,
        tenant: Labels | Iterable[str | None] | None = None,
        lora_id: npt.ArrayLike | None = None,
    ) -> Trace:
        """Trace of columns in any order; ids default to the order given, priorities to 0.

        Raises:
            TraceError: as the class says.
        """
        arrivals = _as_floats("arrival_s", arrival_s)
        ids = np.arange(len(arrivals)) if request_id is None else _as_ints("request_id", request_id)
        levels = np.zeros(len(arrivals), np.int64) if priority is None else priority
        columns: dict[str, Any] = {
            "request_id": ids,
            "arrival_s": arrivals,
            "num_prompt_tokens": _as_ints("num_prompt_tokens", num_prompt_tokens),
            "num_output_tokens": _as_ints("num_output_tokens", num_output_tokens),
            "priority": _as_ints("priority", levels),
            "prompts": prompts,
            "session_id": _as_labels(session_id),
            "parent_id": None if parent_id is None else _as_ints("parent_id", parent_id),
            "think_time_s": None if think_time_s is None else _as_floats("", think_time_s),
            "tenant": _as_labels(tenant),
            "lora_id": None if lora_id is None else _as_ints("lora_id", lora_id),
        }
        check_same_length(columns)
        if not is_sorted(arrivals, ids):
            order = np.lexsort((ids, arrivals))
            columns = {name: _taken(column, order) for name, column in columns.items()}
        num_rows = len(arrivals)
        del arrivals, ids, levels
        for name in _PLAIN:  # one after the other, so that only one of many rows is there twice
            columns[name] = _frozen(columns[name])
        return cls(**columns, source=source or TraceSource(num_rows_read=num_rows))

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
            session_id=[row.session_id for row in rows],
            parent_id=[NO_PARENT if row.parent_id is None else row.parent_id for row in rows],
            think_time_s=[np.nan if row.think_time_s is None else row.think_time_s for row in rows],
            tenant=[row.tenant for row in rows],
            lora_id=[row.lora_id for row in rows],
        )

    def __len__(self) -> int:
        return len(self.request_id)

    def __getitem__(self, index: int) -> RequestSpec:
        row = range(len(self))[index]
        return next(self._requests(slice(row, row + 1)))

    def __iter__(self) -> Iterator[RequestSpec]:
        for start in range(0, len(self), _ITERATED_AT_ONCE):
            yield from self._requests(slice(start, start + _ITERATED_AT_ONCE))

    def __reduce__(self) -> tuple[Any, ...]:
        # Through the constructor: plain unpickling would give writable arrays.
        return _rebuilt, (self.columns(), self.source)

    @property
    def duration_s(self) -> float:
        """Seconds from the first arrival to the last."""
        return float(self.arrival_s[-1] - self.arrival_s[0])

    @cached_property
    def content_sha256(self) -> str:
        """Digest of the columns: equal for traces of equal requests, whatever their source."""
        digest = hashlib.sha256(b"headway trace 2")
        for name, column in self.columns().items():
            if column is None:
                continue
            digest.update(name.encode())
            if isinstance(column, (PromptTable, Labels)):
                for part in column.content_bytes():
                    digest.update(part)
            else:
                digest.update(column.astype(column.dtype.newbyteorder("<"), copy=False))
        return digest.hexdigest()

    def columns(self) -> dict[str, Any]:
        """All columns by name; the optional ones in which nothing is said are None."""
        return {name: getattr(self, name) for name in (*_PLAIN, *_OPTIONAL)}

    def take(self, indices: npt.ArrayLike, what: str) -> Trace:
        """The requests at `indices` (ids kept), with the transform `what` noted in the source.

        A request whose parent is left out begins its session.
        """
        order = np.asarray(indices, dtype=np.int64)
        columns = {name: _taken(column, order) for name, column in self.columns().items()}
        if self.parent_id is not None:
            is_there = np.isin(columns["parent_id"], columns["request_id"])
            columns["parent_id"] = np.where(is_there, columns["parent_id"], NO_PARENT)
        return Trace.from_columns(**columns, source=self.source.transformed(what))

    def with_arrivals(self, arrival_s: npt.ArrayLike, what: str) -> Trace:
        """The same requests at other times, with the transform `what` noted in the source."""
        return self.with_columns(what, arrival_s=np.asarray(arrival_s, dtype=np.float64))

    def with_columns(self, what: str, **changes: Any) -> Trace:
        """This trace with some columns changed, with the transform `what` noted in the source."""
        columns = self.columns() | changes
        return Trace.from_columns(**columns, source=self.source.transformed(what))

    def with_source(self, **changes: Any) -> Trace:
        """This trace with fields of its source changed."""
        return replace(self, source=replace(self.source, **changes))

    def _requests(self, rows: slice) -> Iterator[RequestSpec]:
        ids = self.request_id[rows].tolist()
        return map(
            RequestSpec,
            ids,
            self.arrival_s[rows].tolist(),
            self.num_prompt_tokens[rows].tolist(),
            self.num_output_tokens[rows].tolist(),
            itertools.repeat((), len(ids)) if self.prompts is None else self.prompts[rows],
            self.priority[rows].tolist(),
            _values(self.session_id, rows),
            (None if parent == NO_PARENT else parent for parent in _values(self.parent_id, rows)),
            map(_or_none, _values(self.think_time_s, rows)),
            _values(self.tenant, rows),
            itertools.repeat(0) if self.lora_id is None else self.lora_id[rows].tolist(),
        )


def _rebuilt(columns: dict[str, Any], source: TraceSource) -> Trace:
    return Trace(**columns, source=source)


def _values(column: Any, rows: slice) -> Iterable[Any]:
    if column is None:
        return itertools.repeat(None)
    return column.values(rows) if isinstance(column, Labels) else column[rows].tolist()


def _or_none(seconds: float | None) -> float | None:
    return None if seconds is None or math.isnan(seconds) else seconds


def _as_labels(values: Any) -> Labels | None:
    """Labels numbered as they come; None if all are absent."""
    if values is None:
        return None
    labels = values.tidy() if isinstance(values, Labels) else Labels.from_values(values)
    return labels if labels.names else None


def _as_floats(name: str, values: npt.ArrayLike) -> FloatArray:
    try:
        array = np.asarray(values, dtype=np.float64)
        if np.signbit(array).any():
            # Adding 0.0 turns -0.0 into 0.0, so that equal traces have equal bytes.
            array = array + 0.0
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
    if array.dtype == np.int64:
        return array
    with np.errstate(invalid="ignore"):
        whole = array.astype(np.int64)
    wrong = np.flatnonzero(whole != array)
    if wrong.size:
        raise TraceError(
            f"{name}, row {wrong[0]}: {array[wrong[0]]} is wrong; it must be a whole number"
        )
    return whole


def _frozen(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Over immutable bytes (a copy) or a file opened to read: never writable again."""
    if isinstance(array.base, bytes) or is_read_only_file(array):
        return array
    return np.frombuffer(array.tobytes(), dtype=array.dtype)


def _taken(column: Any, order: IntArray) -> Any:
    if column is None or isinstance(column, np.ndarray):
        return None if column is None else column[order]
    if isinstance(column, (PromptTable, Labels)):
        return column.take(order)
    return [column[row] for row in order]
