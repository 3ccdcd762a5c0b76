"""Step times in the core are those of the cost models, to the last bit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibration import (
    ConstantCost,
    CostModel,
    ProfileCost,
    StepShape,
    load_gpu,
    load_model,
    shipped_profile,
)
from calibration.profile_tables import BoxTable, ShareTable
from sim._core import native
from sim.compiled import _form, make_core
from sim.config import EngineConfig
from sim.rng import Streams
from sim.scheduler.config import CacheConfig, SchedulerConfig
from tests.calibration.cost_models import every_cost_model

pytestmark = pytest.mark.skipif(native is None, reason="the compiled core is not built here")

MODELS = every_cost_model()
LLAMA = load_model("llama-3.1-8b")
SHIPPED = {
    name: profile
    for name in ("a100-sxm-80gb", "h100-sxm-80gb", "b200-sxm-180gb")
    if (profile := shipped_profile(LLAMA, load_gpu(name))) is not None
}
counts = st.integers(1, 4096)
chunks = st.lists(st.tuples(st.integers(2, 20_000), st.integers(0, 150_000)), max_size=5)


@st.composite
def shapes(draw: st.DrawFn) -> StepShape:
    pieces = tuple(draw(chunks))
    num_decodes = draw(st.one_of(st.integers(0, 8), counts)) if pieces else draw(counts)
    context = sum(draw(st.lists(st.integers(1, 150_000), min_size=1, max_size=3)))
    context = num_decodes + context if num_decodes else 0
    num_tokens = num_decodes + sum(new for new, _ in pieces)
    num_logits = draw(st.integers(0, num_decodes + len(pieces)))
    longest = draw(st.integers(0, 200_000)) if num_decodes else 0
    return StepShape(num_tokens, num_logits, num_decodes, context, pieces, longest)


def core_with(cost: CostModel) -> Any:
    engine = EngineConfig(SchedulerConfig(), CacheConfig(10), "test")
    return make_core(engine, cost, stops_at_ends=False)


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=150, deadline=None)
@given(shape=shapes())
def test_every_model_is_the_same(name: str, shape: StepShape) -> None:
    model = MODELS[name]
    assert _form(model) is not None
    assert core_with(model).probe_cost(shape) == model.step_time_s(shape)


@pytest.mark.parametrize("name", SHIPPED)
@settings(max_examples=100, deadline=None)
@given(shape=shapes())
def test_every_shipped_profile_is_the_same(name: str, shape: StepShape) -> None:
    model = SHIPPED[name]
    assert core_with(model).probe_cost(shape) == model.step_time_s(shape)


def redrawn(table: Any, rng: Any) -> Any:
    shape = np.array(table.time_us).shape
    return replace(table, time_us=rng.uniform(1.0, 1e4, shape).tolist())


@pytest.mark.parametrize("seed", range(8))
def test_a_profile_of_any_numbers_is_the_same(seed: int) -> None:
    """Falling tables too: beyond their end the last value holds."""
    rng = Streams(seed).rng("tables")
    profile = SHIPPED["h100-sxm-80gb"].profile
    tables = ("dense", "logits", "prefill_attention", "decode_attention")
    changes = {name: redrawn(getattr(profile, name), rng) for name in tables}
    if seed % 2:
        axes = ((16.0, 512.0, 4096.0), (1.0, 64.0), (16.0, 1024.0, 8192.0))
        box = BoxTable("new_tokens", "num_decodes", "mean_context", *axes, np.zeros((3, 2, 3)))
        changes["decode_beside_chunks"] = redrawn(box, rng)
    if seed % 4 >= 2:
        for name in ("decode_skew", "decode_skew_beside_chunks"):
            shares = tuple(rng.uniform(0, 1, 3).tolist())
            changes[name] = ShareTable("num_decodes", (2.0, 16.0, 256.0), shares)
    model = ProfileCost(replace(profile, **changes))
    core = core_with(model)
    for _ in range(300):
        new = rng.integers(2, 30_000, rng.integers(0, 4)).tolist()
        pieces = tuple((n, int(rng.integers(0, 100_000))) for n in new)
        num_decodes = int(rng.integers(0 if pieces else 1, 600))
        context = num_decodes * int(rng.integers(1, 60_000))
        num_logits = num_decodes + len(pieces)
        longest = int(rng.integers(0, 100_000)) if num_decodes else 0
        num_tokens = num_decodes + sum(new)
        shape = StepShape(num_tokens, num_logits, num_decodes, context, pieces, longest)
        assert core.probe_cost(shape) == model.step_time_s(shape)


def test_a_changed_formula_has_no_form() -> None:
    class Slower(ConstantCost):
        def step_time_s(self, shape: StepShape) -> float:
            return 2 * self.step_s

    assert _form(Slower(1.0)) is None
    assert core_with(Slower(1.0)).probe_cost(StepShape(1, 1, 1, 1)) == 2.0


def test_an_error_of_a_model_comes_through() -> None:
    class Broken(ConstantCost):
        def step_time_s(self, shape: StepShape) -> float:
            raise ZeroDivisionError("no such step")

    core = core_with(Broken(1.0))
    core.submit(0.0, 0, 0.0, 0, 20, 2, None)
    with pytest.raises(ZeroDivisionError, match="no such step"):
        core.advance(1.0)
    with pytest.raises(RuntimeError, match="failed before"):
        core.advance(2.0)
