"""Grids and samples of them: which points, how many, and what is refused before anything runs."""

import itertools

import numpy as np
import pytest

from sim.errors import StudyError
from sim.study.plan import make_plan, require_grid
from tests.study.studies import chat_study

SEQS, SCALE = "engine.max_num_seqs", "trace.rate_scale"


def plan_of(**sweep):
    return make_plan({**chat_study(seed=7), "sweep": sweep}, "x.yaml")


def test_a_grid_is_every_combination_with_every_seed():
    plan = plan_of(grid={SEQS: [4, 8], SCALE: [1.0, 2.0, 3.0]}, seeds=2)
    points = plan.points()
    expected = list(itertools.product([4, 8], [1.0, 2.0, 3.0], [7, 8]))
    assert [(*dict(p.settings).values(), p.seed) for p in points] == expected
    assert plan.num_points == len(points) == 12
    first = points[0].file
    assert (first.engine.max_num_seqs, first.trace.rate_scale, first.seed) == (4, 1.0, 7)


def test_the_seed_may_be_a_key_of_the_grid():
    assert [p.seed for p in plan_of(grid={"seed": [3, 1]}).points()] == [3, 1]


def test_whole_sections_may_vary():
    costs = [{"kind": "constant", "step_s": 0.01}, {"kind": "roofline"}]
    kinds = [p.file.cost_model.kind for p in plan_of(grid={"cost_model": costs}).points()]
    assert kinds == ["constant", "roofline"]


def test_counting_a_huge_grid_makes_no_list_of_it():
    grid = {SEQS: list(range(1, 1001)), "engine.max_num_batched_tokens": list(range(1, 1001))}
    assert plan_of(grid=grid, seeds=3).num_points == 3_000_000


@pytest.mark.parametrize("method", ["random", "sobol"])
def test_a_sample_is_of_the_grid_and_the_same_each_time(method):
    grid = {SEQS: [1, 2, 3, 4, 5], SCALE: {"low": 0.1, "high": 10.0, "log": True}}
    sample = {"method": method, "points": 32, "seed": 4}
    settings = [dict(p.settings) for p in plan_of(grid=grid, sample=sample).points()]
    assert settings == [dict(p.settings) for p in plan_of(grid=grid, sample=sample).points()]
    assert len(settings) == 32
    assert {s[SEQS] for s in settings} == {1, 2, 3, 4, 5}
    assert all(0.1 <= s[SCALE] <= 10.0 for s in settings)


def test_sobol_fills_a_logarithmic_range_evenly():
    grid = {SCALE: {"low": 0.01, "high": 100.0, "log": True}}
    points = plan_of(grid=grid, sample={"method": "sobol", "points": 64}).points()
    exponents = np.sort([np.log10(dict(p.settings)[SCALE]) for p in points])
    counts, _ = np.histogram(exponents, bins=np.linspace(-2, 2, 9))
    assert counts.min() >= 4  # 64 points in 8 bins, 8 each on average


def test_a_sample_of_a_small_grid_has_no_point_twice():
    points = plan_of(grid={SEQS: [1, 2, 3]}, sample={"method": "random", "points": 50}).points()
    assert sorted(dict(p.settings)[SEQS] for p in points) == [1, 2, 3]


WRONG = {
    "unknown key": ({"grid": {"engine.max_num_seq": [1]}}, "did you mean 'max_num_seqs'"),
    "wrong type": ({"grid": {SEQS: ["many"]}}, "'many' is not an integer"),
    "out of range": ({"grid": {SEQS: [0]}}, "at least 1"),
    "no values": ({"grid": {SEQS: []}}, "the list of values is empty"),
    "not a list": ({"grid": {SEQS: 4}}, "sweep.grid"),
    "range without a sample": ({"grid": {SCALE: {"low": 1.0, "high": 2.0}}}, "give a list"),
    "no seeds": ({"grid": {SEQS: [1]}, "seeds": 0}, "sweep.seeds"),
    "unknown sweep key": ({"grid": {}, "executer": "ray"}, "did you mean 'executor'"),
    "unknown executor": ({"grid": {}, "executor": "slurm"}, "slurm"),
    "no jobs": ({"grid": {}, "jobs": 0}, "sweep.jobs"),
    "backwards": (
        {"grid": {SCALE: {"low": 2.0, "high": 1.0}}, "sample": {"points": 2}},
        "is no range",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said_before_anything_runs(name):
    sweep, said = WRONG[name]
    with pytest.raises(StudyError, match="x") as error:
        plan_of(**sweep).points()
    assert said in str(error.value)


def test_an_empty_grid_is_refused():
    with pytest.raises(StudyError, match="the grid is empty"):
        require_grid(plan_of(grid={}))
