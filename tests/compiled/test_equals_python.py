"""The compiled core gives the rows of the Python replicas, stepping and leaping, bit for bit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sim._core import native
from sim.config import ResolvedStudy
from sim.run_result import RunResult
from sim.simulation import simulate
from tests.sim.small_study import make_study
from tests.sim.test_leap_equals_stepping import differences, loads, options, workloads
from traces import RequestSpec

pytestmark = pytest.mark.skipif(native is None, reason="the compiled core is not built here")


def compiled(study: ResolvedStudy) -> ResolvedStudy:
    return replace(study, engine=replace(study.engine, core="compiled"))


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(workloads(), options(), st.data())
def test_same_rows(
    requests: list[RequestSpec], chosen: dict[str, Any], data: st.DataObject
) -> None:
    load = data.draw(loads(len(requests)))
    study = make_study(requests, **chosen, load=load, leap=False)
    ours: RunResult = simulate(compiled(study))
    assert differences(ours, simulate(study)) == []
