"""What a Trace promises whoever holds one."""

import copy
import pickle
from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest

from traces import RequestSpec, Trace, TraceError

COLUMNS = ("request_id", "arrival_s", "num_prompt_tokens", "num_output_tokens", "priority")


def small(**changes: Any) -> Trace:
    columns: dict[str, Any] = {
        "arrival_s": [0.0, 0.5, 0.5],
        "num_prompt_tokens": [10, 20, 30],
        "num_output_tokens": [1, 2, 3],
    }
    return Trace.from_columns(**(columns | changes))


def test_columns_are_sorted_by_arrival_then_id() -> None:
    trace = small(arrival_s=[2.0, 1.0, 1.0], request_id=[0, 9, 4])
    assert trace.request_id.tolist() == [4, 9, 0]
    assert trace.num_prompt_tokens.tolist() == [30, 20, 10]
    assert trace.duration_s == 1.0


def test_rows_come_as_plain_requests_and_go_back() -> None:
    prompts = [(), (("system", 5), (7, 15)), ()]
    trace = small(prompts=prompts, priority=[0, -1, 2])
    assert list(trace) == [trace[0], trace[1], trace[2]]
    assert trace[1] == RequestSpec(1, 0.5, 20, 2, (("system", 5), (7, 15)), -1)
    assert type(trace[1].arrival_s) is float
    assert type(trace[1].num_prompt_tokens) is int
    assert Trace.from_requests(trace).content_sha256 == trace.content_sha256
    assert trace[-1] == trace[2]
    with pytest.raises(IndexError):
        trace[3]


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize(
    "remake", [lambda t: t, lambda t: pickle.loads(pickle.dumps(t)), copy.deepcopy]
)
def test_no_column_can_be_written(name: str, remake: Any) -> None:
    column = getattr(remake(small()), name)
    with pytest.raises(ValueError, match="read-only"):
        column[0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        column.setflags(write=True)


def test_fields_are_frozen_and_columns_are_copies() -> None:
    arrivals = np.array([0.0, 0.5, 0.5])
    trace = small(arrival_s=arrivals)
    arrivals[0] = 99.0
    assert trace.arrival_s[0] == 0.0
    with pytest.raises(FrozenInstanceError):
        trace.arrival_s = arrivals  # type: ignore[misc]


def test_pickling_keeps_content_and_source() -> None:
    trace = small(prompts=[(("a", 10),), (), ()])
    again = pickle.loads(pickle.dumps(trace))
    assert (again.content_sha256, again.source) == (trace.content_sha256, trace.source)


def test_content_digest_sees_every_column_and_only_content() -> None:
    base = small()
    assert small().content_sha256 == base.content_sha256
    assert base.with_source(name="elsewhere").content_sha256 == base.content_sha256
    assert small(prompts=[(), (), ()]).content_sha256 == base.content_sha256
    assert small(arrival_s=[-0.0, 0.5, 0.5]).content_sha256 == base.content_sha256
    others = [
        small(arrival_s=[0.0, 0.5, 0.25]),
        small(num_prompt_tokens=[10, 20, 31]),
        small(num_output_tokens=[1, 2, 4]),
        small(priority=[0, 0, 1]),
        small(request_id=[0, 1, 3]),
        small(prompts=[((1, 10),), (), ()]),
        small(prompts=[(("1", 10),), (), ()]),
    ]
    digests = {other.content_sha256 for other in others}
    assert len(digests | {base.content_sha256}) == len(others) + 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"arrival_s": [0.0, float("nan"), 1.0]}, ["request 1", "arrival_s", "nan"]),
        ({"arrival_s": [0.0, float("inf"), 1.0]}, ["request 1", "arrival_s", "inf"]),
        ({"arrival_s": [0.0, -1.0, 1.0]}, ["request 1", "arrival_s", "-1.0", ">= 0"]),
        ({"arrival_s": ["a", "b", "c"]}, ["arrival_s", "numbers"]),
        ({"arrival_s": [[0.0], [1.0], [2.0]]}, ["arrival_s", "2 dimensions"]),
        ({"num_prompt_tokens": [0, 1, 1]}, ["request 0", "num_prompt_tokens", "0"]),
        ({"num_output_tokens": [1, 0, 1]}, ["request 1", "num_output_tokens", "0"]),
        ({"num_output_tokens": [1, -3, 1]}, ["request 1", "num_output_tokens", "-3"]),
        ({"num_prompt_tokens": [10**9, 1, 1]}, ["num_prompt_tokens", "1000000000"]),
        ({"num_prompt_tokens": [1.5, 1, 1]}, ["num_prompt_tokens", "1.5", "whole number"]),
        ({"num_prompt_tokens": [float("nan"), 1, 1]}, ["num_prompt_tokens", "nan"]),
        ({"num_prompt_tokens": ["1", "2", "3"]}, ["num_prompt_tokens", "integers"]),
        ({"num_prompt_tokens": [True, True, True]}, ["num_prompt_tokens", "bool"]),
        ({"num_prompt_tokens": [1, 2]}, ["equally long", "'num_prompt_tokens': 2"]),
        ({"prompts": [()]}, ["equally long", "'prompts': 1"]),
        ({"request_id": [1, 2, 1]}, ["request_id 1", "twice"]),
        ({"request_id": [-1, 2, 1]}, ["request_id", "-1"]),
        ({"priority": [2**70, 0, 0]}, ["priority", "64-bit"]),
        ({"prompts": [((1, 9),), (), ()]}, ["request 0", "prompt", "9 tokens", "10"]),
        ({"prompts": [((1, 0), (2, 10)), (), ()]}, ["request 0", "prompt", "0", ">= 1"]),
        ({"prompts": [((1.5, 10),), (), ()]}, ["request 0", "prompt", "1.5"]),
        ({"prompts": [((True, 10),), (), ()]}, ["request 0", "prompt", "True"]),
        ({"prompts": [((1, 10.0),), (), ()]}, ["request 0", "prompt", "10.0"]),
        ({"prompts": [((2**64, 10),), (), ()]}, ["request 0", "prompt", "64-bit"]),
        ({"prompts": [(("\ud800", 10),), (), ()]}, ["request 0", "prompt", "ud800"]),
        ({"prompts": [((1, 10, 3),), (), ()]}, ["request 0", "prompt", "(1, 10, 3)"]),
    ],
)
def test_wrong_values_are_refused(changes: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(TraceError) as caught:
        small(**changes)
    for word in words:
        assert word in str(caught.value)


def test_a_trace_has_a_request() -> None:
    with pytest.raises(TraceError, match="no request"):
        Trace.from_columns([], [], [])


def test_plain_constructor_demands_order() -> None:
    trace = small()
    with pytest.raises(TraceError, match="sorted"):
        Trace(
            trace.request_id,
            trace.arrival_s[::-1],
            trace.num_prompt_tokens,
            trace.num_output_tokens,
            trace.priority,
        )
