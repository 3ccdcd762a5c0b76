"""Steps that scatter: the size of it, that the model stays pure, and what it does to a load."""

import numpy as np
import pytest

from calibration import ProfileCost, StepShape, decode_shape, parse_profile
from calibration.bench.reference_model import REFERENCE_MODEL
from sim.engine import HostOverhead
from sim.rng import Streams
from sim.scheduler.config import CacheConfig, SchedulerConfig
from sim.validate.load_study import (
    NUM_SIMULATED,
    Load,
    Machine,
    StepErrors,
    predict,
    predict_scattered,
)
from sim.validate.scattered_cost import Scatter, ScatteredCost
from tests.calibration.cost_models import profile_document, skewed_document
from traces import Trace

SCATTER = 0.1
NUM_SHAPES = 4000


def inner() -> ProfileCost:
    return ProfileCost(parse_profile(skewed_document(), "p.json"))


def factors(number: int, scatter: float = SCATTER) -> np.ndarray:
    model, scattered = inner(), ScatteredCost(inner(), Scatter(scatter, 0.0), number)
    shapes = [decode_shape(1 + i % 8, 100 + i, 100) for i in range(NUM_SHAPES)]
    return np.array([scattered.step_time_s(s) / model.step_time_s(s) for s in shapes])


def test_factors_have_the_mean_and_spread_that_are_asked_for() -> None:
    """Within four standard errors of a lognormal's mean and of a normal's standard deviation."""
    found = factors(0)
    assert found.mean() == pytest.approx(1.0, abs=4 * SCATTER / NUM_SHAPES**0.5)
    assert np.log(found).std() == pytest.approx(SCATTER, rel=4 / (2 * NUM_SHAPES) ** 0.5)


def test_two_draws_are_independent() -> None:
    correlation = np.corrcoef(factors(0), factors(1))[0, 1]
    assert abs(correlation) < 4 / NUM_SHAPES**0.5


def test_the_same_shape_takes_the_same_time_and_leaps_are_its_steps() -> None:
    model = ScatteredCost(inner(), Scatter(SCATTER, 2 * SCATTER), 3)
    shape = StepShape(20, 1, 1, 30, ((19, 0),), 30)
    assert model.step_time_s(shape) == model.step_time_s(shape)
    leap = model.decode_times_s(3, 300, 5, 120)
    steps = [model.step_time_s(decode_shape(3, 300 + 3 * i, 120 + i)) for i in range(5)]
    assert leap.tolist() == steps
    unknown = model.decode_times_s(3, 300, 2)
    assert unknown.tolist() == [model.step_time_s(decode_shape(3, 300 + 3 * i)) for i in range(2)]


def test_without_scatter_it_is_the_model_itself() -> None:
    assert (factors(0, scatter=0.0) == 1.0).all()


def test_steps_with_chunks_scatter_by_their_own_figure() -> None:
    model = ScatteredCost(inner(), Scatter(0.0, SCATTER), 0)
    chunks = [StepShape(20 + i, 1, 1, 30, ((19 + i, 0),), 30) for i in range(NUM_SHAPES)]
    found = [model.step_time_s(shape) / inner().step_time_s(shape) for shape in chunks]
    assert np.log(found).std() == pytest.approx(SCATTER, rel=4 / (2 * NUM_SHAPES) ** 0.5)
    decodes = decode_shape(3, 300, 120)
    assert model.step_time_s(decodes) == inner().step_time_s(decodes)


def test_scatter_is_read_off_steps_whatever_their_outliers_and_the_pace_of_their_runs() -> None:
    rng = Streams(0).rng("steps")
    number = 20_000
    has_chunks = np.arange(number) % 4 == 0
    run = np.arange(number) * 5 // number
    sigma = np.where(has_chunks, SCATTER / 2, SCATTER)
    predicted = rng.uniform(0.01, 0.1, number)
    measured = (1.2 + run / 5) * predicted * np.exp(rng.normal(0.0, sigma))
    measured[:100] *= 30
    found = StepErrors(measured, predicted, ("any",) * number, run, has_chunks).scatter
    assert found.decodes_only == pytest.approx(SCATTER, rel=0.04)
    assert found.with_chunks == pytest.approx(SCATTER / 2, rel=0.04)


def test_simulations_of_a_load_differ_by_their_steps_alone() -> None:
    machine = Machine(
        REFERENCE_MODEL, parse_profile(profile_document(), "p.json"), HostOverhead(1e-3, 1e-4)
    )
    scheduler = SchedulerConfig(max_num_seqs=8, max_num_batched_tokens=64, max_model_len=256)
    trace = Trace.from_columns(np.arange(12) / 50, np.arange(12) + 10, np.full(12, 6))
    load = Load("by hand", trace, scheduler, CacheConfig(65, 32))
    plain = predict(machine, load)
    still, _ = predict_scattered(machine, load, Scatter(0.0, 0.0))
    assert len(still) == NUM_SIMULATED
    assert all((run["E2E"] == plain["E2E"]).all() for run in still)
    moved, _ = predict_scattered(machine, load, Scatter(SCATTER, SCATTER))
    assert len({float(run["E2E"].mean()) for run in moved}) == NUM_SIMULATED
