"""The one contract of every cost model."""

import json
import math
from dataclasses import asdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibration import CostModel, StepShape, decode_shape, later_shape
from tests.calibration.cost_models import every_cost_model

MODELS = every_cost_model()
each_model = pytest.mark.parametrize("cost", MODELS.values(), ids=MODELS.keys())
few = settings(max_examples=60, deadline=None)

counts = st.integers(1, 1024)
contexts = st.integers(0, 200_000)
chunks = st.tuples(st.integers(2, 16_384), st.integers(0, 130_000))


@st.composite
def shapes(draw: st.DrawFn) -> StepShape:
    decodes = draw(st.integers(0, 1024))
    pieces = draw(st.lists(chunks, min_size=0 if decodes else 1, max_size=4))
    finished = draw(st.integers(0, len(pieces)))
    tokens = decodes + sum(new for new, _ in pieces)
    extra = draw(st.integers(0, 10_000_000))
    context = decodes + extra if decodes else 0
    longest = draw(longest_contexts(decodes, context))
    return StepShape(tokens, decodes + finished, decodes, context, tuple(pieces), longest)


def longest_contexts(decodes: int, context: int) -> st.SearchStrategy[int]:
    """What the longest of some contexts may be, and 0: not known."""
    if not decodes:
        return st.just(0)
    return st.one_of(st.just(0), st.integers(-(-context // decodes), context - decodes + 1))


@each_model
@few
@given(shape=shapes())
def test_a_step_takes_a_finite_time_above_zero(cost: CostModel, shape: StepShape) -> None:
    step_s = cost.step_time_s(shape)
    assert isinstance(step_s, float)
    assert math.isfinite(step_s)
    assert step_s > 0
    assert cost.step_time_s(shape) == step_s


@each_model
@few
@given(
    decodes=counts,
    extra=contexts,
    steps=st.one_of(st.integers(0, 12), st.integers(13, 3000)),
    data=st.data(),
)
def test_decode_runs_equal_single_steps_bit_for_bit(
    cost: CostModel, decodes: int, extra: int, steps: int, data: st.DataObject
) -> None:
    context = decodes + extra
    longest = data.draw(longest_contexts(decodes, context))
    times_s = cost.decode_times_s(decodes, context, steps, longest)
    assert times_s.dtype == "float64"
    assert times_s.shape == (steps,)
    first = decode_shape(decodes, context, longest)
    assert times_s.tolist() == [cost.step_time_s(later_shape(first, i)) for i in range(steps)]


@each_model
@few
@given(shape=shapes())
def test_a_longer_longest_context_is_never_cheaper(cost: CostModel, shape: StepShape) -> None:
    even = shape._replace(decode_max_context_tokens=0)
    assert cost.step_time_s(even) <= cost.step_time_s(shape) * (1 + 1e-12)
    longer = shape._replace(decode_max_context_tokens=2 * shape.decode_max_context_tokens)
    assert cost.step_time_s(shape) <= cost.step_time_s(longer) * (1 + 1e-12)


def test_decode_runs_stay_exact_at_huge_contexts() -> None:
    for cost in MODELS.values():
        times_s = cost.decode_times_s(1024, 2**40 + 1, 40)
        single = [cost.step_time_s(decode_shape(1024, 2**40 + 1 + i * 1024)) for i in range(40)]
        assert times_s.tolist() == single


@each_model
@few
@given(shape=shapes(), more=st.integers(1, 5000))
def test_more_context_is_never_cheaper(cost: CostModel, shape: StepShape, more: int) -> None:
    longer_chunks = tuple((new, computed + more) for new, computed in shape.chunks)
    longer = shape._replace(
        decode_context_tokens=shape.decode_context_tokens + more * shape.num_decodes,
        chunks=longer_chunks,
    )
    # An ulp or two of rounding is no saving.
    assert cost.step_time_s(longer) >= cost.step_time_s(shape) * (1 - 1e-12)


@each_model
@few
@given(shape=shapes(), piece=chunks)
def test_one_more_chunk_is_never_cheaper(
    cost: CostModel, shape: StepShape, piece: tuple[int, int]
) -> None:
    more = shape._replace(num_tokens=shape.num_tokens + piece[0], chunks=(*shape.chunks, piece))
    assert cost.step_time_s(more) >= cost.step_time_s(shape) * (1 - 1e-12)


@each_model
@few
@given(shape=shapes(), context=st.integers(1, 100_000))
def test_one_more_decode_is_never_cheaper(cost: CostModel, shape: StepShape, context: int) -> None:
    tokens, logits, decodes, contexts_now, pieces, _ = shape
    # Without skew: among more requests the same longest one counts for less.
    shape = shape._replace(decode_max_context_tokens=0)
    more = StepShape(tokens + 1, logits + 1, decodes + 1, contexts_now + context, pieces)
    # Table models see the mean context only, so hold it: a decode of the mean length joins.
    if decodes and context * decodes < contexts_now:
        more = more._replace(
            decode_context_tokens=contexts_now + -(-contexts_now // decodes),
        )
    assert cost.step_time_s(more) >= cost.step_time_s(shape) * (1 - 1e-12)


@each_model
def test_provenance_is_plain_json_and_says_whether_it_was_measured(cost: CostModel) -> None:
    provenance = cost.provenance
    assert json.loads(json.dumps(asdict(provenance))) == asdict(provenance)
    assert provenance.label
    assert "\n" not in provenance.label
    assert provenance.calibrated == (provenance.kind == "profile")


def test_roofline_results_always_say_what_they_are() -> None:
    label = MODELS["roofline"].provenance.label
    assert label.startswith("roofline: data-sheet peaks") and "not calibrated" in label
