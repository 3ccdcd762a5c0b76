"""What a reader must be told before he believes a run's figures."""

import re

import pytest

from calibration import ConstantCost
from sim.config import ResolvedStudy, resolve_study
from sim.config.resolved import ClosedLoad
from sim.metrics import summarise
from sim.scheduler.config import CacheConfig, SchedulerConfig
from sim.simulation import simulate
from tests.sim.small_study import make_study
from traces import RequestSpec

ONE_AT_A_TIME = SchedulerConfig(max_num_seqs=1)


def a_server(gap_s: float, num_requests: int, num_output: int, **options: object) -> ResolvedStudy:
    """One request at a time, a second a token."""
    specs = [RequestSpec(i, gap_s * i, 8, num_output) for i in range(num_requests)]
    return make_study(specs, ONE_AT_A_TIME, CacheConfig(2000), ConstantCost(1.0), **options)


def doubt(study: ResolvedStudy) -> str | None:
    window = summarise(simulate(study))["steady_window"]
    assert window is not None
    found: str | None = window["not_steady"]
    return found


def test_more_than_is_served_is_no_steady_window() -> None:
    """Two arrive a second and one is served: one more waits every second, half of all arrivals."""
    said = doubt(a_server(0.5, 300, 1))
    assert said is not None
    grows, share = re.findall(r"[0-9.]+", said)
    assert (float(grows), float(share)) == pytest.approx((1.0, 50.0), rel=0.01)


def test_a_server_with_time_to_spare_is_steady() -> None:
    assert doubt(a_server(2.0, 300, 1)) is None


def test_arrivals_that_are_over_before_anything_ends_have_no_steady_window() -> None:
    """Five requests within 4 seconds, each of which takes 10 seconds once it runs."""
    said = doubt(a_server(1.0, 5, 10))
    assert said is not None and said.startswith("arrivals last 4 s, less than 4 times the mean E2E")


def test_a_closed_load_is_not_judged_by_its_arrivals() -> None:
    """Its arrivals follow its completions, so that they last as long as it does."""
    load = ClosedLoad(concurrency=2, rounds=3)
    assert doubt(a_server(1.0, 6, 10, load=load)) is None


def test_a_run_cut_off_says_what_it_lacks() -> None:
    """Ten seconds each, one at a time: after 25 s two are done, and the third arrived at 20 s."""
    study = a_server(10.0, 6, 10, until_s=25.0)
    (said,) = simulate(study).info.warnings
    assert said == (
        "stopped at until_s 25 s: 1 requests are unfinished, so latencies lack the longest ones, "
        "and 3 were never sent"
    )
    assert not simulate(a_server(10.0, 6, 10, until_s=1000.0)).info.warnings


def resolved(model: str, **engine: object) -> ResolvedStudy:
    one = {"median": 10.0}
    generator = {"num_requests": 2, "rate_per_s": 1.0, "prompt_tokens": one, "output_tokens": one}
    values = {"trace": {"generator": generator}, "model": model, "hardware": "h200"}
    return resolve_study({**values, "engine": {"max_model_len": 4096, **engine}}, "s")


def test_adapters_are_said_to_take_nothing() -> None:
    """They cap what runs together; their products and weights are not in any figure."""
    one = {"median": 10.0}
    generator = {"num_requests": 9, "rate_per_s": 1.0, "prompt_tokens": one, "output_tokens": one}
    for weights, number in (({0: 1.0}, 0), ({1: 1.0}, 1)):
        trace = {"generator": {**generator, "lora_weights": weights}}
        values = {"trace": trace, "model": "llama-3.1-8b", "hardware": "h200"}
        study = resolve_study({**values, "engine": {"max_loras": 1}}, "s")
        assert sum("LoRA adapters take no time" in text for text in study.warnings) == number


@pytest.mark.parametrize(("step_s", "is_warned"), [(0.0, True), (0.001, False)])
def test_drafts_that_take_no_time_are_said_to(step_s: float, is_warned: bool) -> None:
    drafts = {"method": "eagle", "num_speculative_tokens": 3, "acceptance_rate": 0.5}
    warnings = resolved("llama-3.1-8b", speculative_config={**drafts, "draft_step_s": step_s})
    assert any("draft_step_s is 0" in text for text in warnings.warnings) == is_warned
