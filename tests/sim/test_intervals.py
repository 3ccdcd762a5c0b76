"""Intervals: as wide as the profile is uncertain, the same each time, refused without a profile."""

from dataclasses import replace

import numpy as np
import pytest

from calibration import ConstantCost, ProfileCost, load_gpu, load_model, parse_profile
from sim.config.engine_options import resolve_engine
from sim.config.resolved import ResolvedStudy
from sim.config.schema import EngineSection
from sim.errors import StudyError
from sim.intervals import run_intervals
from sim.metrics import summarise
from sim.simulation import simulate
from tests.calibration.cost_models import profile_document
from traces import Trace


def study(dense_error: float) -> ResolvedStudy:
    model, gpu = load_model("llama-3.1-8b"), load_gpu("h100")
    fit = {"dense": {"mean": dense_error, "num_points": 9}}
    profile = replace(parse_profile(profile_document(), "p"), fit=fit)
    return ResolvedStudy(
        name="intervals",
        seed=3,
        trace=Trace.from_columns(np.linspace(0, 1, 20), [300] * 20, [40] * 20),
        model=model,
        gpu=gpu,
        cost_model=ProfileCost(profile),
        engine=resolve_engine(EngineSection(), model, gpu),
    )


def test_intervals_hold_the_run_and_grow_with_the_error() -> None:
    widths = []
    for error in (0.0, 0.8):
        one = study(error)
        summary = summarise(simulate(one))
        intervals = run_intervals(one, summary)
        assert [i.metric for i in intervals][:3] == [
            "TTFT mean (s)",
            "TTFT p50 (s)",
            "TTFT p99 (s)",
        ]
        assert all(i.low <= i.value <= i.high for i in intervals)
        assert intervals == run_intervals(one, summary)
        tpot = next(i for i in intervals if i.metric == "TPOT mean (s)")
        widths.append((tpot.high - tpot.low) / tpot.value)
    # 90 % of a lognormal with the step's own 5 %: 2 * 1.645 * 5 %, from 20 members.
    assert 0.09 < widths[0] < 0.26
    assert widths[1] > 2 * widths[0]


def test_a_cost_model_of_unknown_error_is_refused() -> None:
    one = replace(study(0.1), cost_model=ConstantCost(0.01))
    with pytest.raises(StudyError, match="this study's cost model is constant"):
        run_intervals(one, {})
