"""One contract over every queue policy in a run, and what each is for."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings

import policies
from calibration import ConstantCost, LinearCost
from sim.checks.run_checks import check_run
from sim.config import ResolvedStudy, resolve_study
from sim.errors import StudyError
from sim.queue_policies import predicted_lengths
from sim.rng import Streams
from sim.run_result import RunResult, Slo
from sim.scheduler.config import VLLM_VERSION, CacheConfig, SchedulerConfig
from sim.simulation import simulate
from tests.sim.small_study import make_study, run_unless_endless
from tests.sim.test_leap_equals_stepping import differences, options, workloads
from traces import RequestSpec, Trace

FCFS = "fcfs"
BUILT_IN = policies.builtin_queue_policies()
OPTIONS: dict[str, dict[str, Any]] = {
    "earliest-deadline": {"ttft_s": {0: 0.5, 1: 2.0}},
    "multi-level-feedback": {"quantum_tokens": 20, "num_levels": 4},
}
TENANTS = ["a", "b", None]


def under(name: str, study: ResolvedStudy, **engine: Any) -> ResolvedStudy:
    """The same study under another policy."""
    if name == FCFS:
        return study
    given = {"queue_policy": name, "policy_options": OPTIONS.get(name, {}), **engine}
    return replace(study, engine=replace(study.engine, **given))


def with_tenants(requests: list[RequestSpec]) -> list[RequestSpec]:
    return [replace(r, tenant=TENANTS[r.num_prompt_tokens % 3]) for r in requests]


@pytest.mark.parametrize("name", BUILT_IN)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(workloads(), options())
def test_work_that_fits_ends_everything_adds_up_and_leaps_change_nothing(
    name: str, requests: list[RequestSpec], chosen: dict[str, Any]
) -> None:
    until_s = chosen["until_s"]
    specs = with_tenants(requests)
    chosen["engine"] = {}  # the checks need to be told of host time by a study file
    study = make_study(specs, **chosen, slo=Slo(ttft_s=1.0), leap=False)
    study = under(name, study, predicted_length_error=0.3)
    stepping = run_unless_endless(study)
    assume(stepping is not None)
    if until_s is None:
        assert set(stepping.requests["state"]) <= {"finished", "rejected"}
    broken = {outcome.name for outcome in check_run(stepping) if not outcome.ok}
    # A step that preempts its only request computes nothing, and has no row to count it.
    assert broken <= {"preemptions"}
    leaping = simulate(replace(study, engine=replace(study.engine, leap=True)))
    assert differences(leaping, stepping) == []


DIGEST = """
from tests.sim.test_queue_policies import digest
print(digest())
"""


def busy_requests(num_requests: int = 60) -> list[RequestSpec]:
    rng = Streams(7).rng("busy")
    return [
        RequestSpec(
            i,
            float(rng.integers(0, 4)),
            int(rng.integers(1, 90)),
            int(rng.integers(1, 60)),
            priority=int(rng.integers(0, 3)),
            tenant=f"tenant {i % 4}",
        )
        for i in range(num_requests)
    ]


def busy_study(name: str) -> ResolvedStudy:
    scheduler = SchedulerConfig(8, 64, max_model_len=160, async_scheduling=True)
    study = make_study(busy_requests(), scheduler, CacheConfig(30, 8), ConstantCost(0.03125))
    return under(name, study, predicted_length_error=0.5)


def digest() -> str:
    ends = [simulate(busy_study(name)).requests["last_token_s"].tobytes() for name in BUILT_IN]
    return b"".join(ends).hex()


def test_the_order_does_not_depend_on_the_hash_seed() -> None:
    said = []
    checkout = Path(__file__).resolve().parents[2]
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(checkout)}
        command = [sys.executable, "-c", DIGEST]
        ran = subprocess.run(
            command, env=environment, cwd=checkout, capture_output=True, check=True
        )
        said.append(ran)
    assert said[0].stdout == said[1].stdout
    assert len(said[0].stdout) > 100


@pytest.mark.parametrize("name", BUILT_IN)
def test_equals_go_by_arrival_and_then_by_id(name: str) -> None:
    """Requests that a policy can't tell apart, one at a time: first come, first served."""
    requests = [RequestSpec(i, [1.0, 1.0, 0.5][i % 3], 8, 4) for i in range(9)]
    scheduler = SchedulerConfig(1, 64, max_model_len=64)
    study = make_study(requests, scheduler, CacheConfig(40, 8), ConstantCost(0.01))
    ends = simulate(under(name, study)).requests["last_token_s"]
    order = sorted(range(9), key=lambda i: (requests[i].arrival_s, i))
    assert list(np.argsort(ends, kind="stable")) == order


def one_by_one(requests: list[RequestSpec], name: str, **changes: Any) -> RunResult:
    """A server of one request at a time, 10 ms a step."""
    scheduler = SchedulerConfig(1, 512, max_model_len=4096)
    study = make_study(requests, scheduler, CacheConfig(600), ConstantCost(0.01), **changes)
    return simulate(under(name, study))


def mean_wait_s(run: RunResult) -> float:
    return float((run.requests["first_scheduled_s"] - run.requests["arrival_s"]).mean())


def test_shortest_first_has_the_least_mean_wait_of_all_orders() -> None:
    """Smith 1956: sort by length. Jobs of 5, 1, 3, 2 steps, all there at once."""
    steps = [5, 1, 3, 2]
    requests = [RequestSpec(i, 0.0, 10 * n, n) for i, n in enumerate(steps)]
    waits = {name: mean_wait_s(one_by_one(requests, name)) for name in (FCFS, *BUILT_IN)}
    assert waits[FCFS] == pytest.approx(0.01 * (0 + 5 + 6 + 9) / 4)
    for name in ("shortest-prompt", "shortest-predicted"):
        assert waits[name] == pytest.approx(0.01 * (0 + 1 + 3 + 6) / 4)
        assert waits[name] == min(waits.values())


def test_predictions_are_right_on_average_and_off_by_the_stated_share() -> None:
    """Mean of 40,000 factors of deviation 0.3: within 5 standard errors, 0.0075."""
    lengths = np.full(40_000, 1000)
    trace = Trace.from_columns(np.zeros(40_000), lengths, lengths)
    factors = np.array(list(predicted_lengths(trace, 0.3, Streams(0).rng("p")).values())) / 1000
    assert factors.mean() == pytest.approx(1.0, abs=0.0075)
    assert factors.std() == pytest.approx(0.3, abs=0.01)
    exact = predicted_lengths(trace, 0.0, Streams(0).rng("p"))
    assert set(exact.values()) == {1000.0}


def test_worse_predictions_wait_longer() -> None:
    """Between perfect prediction and none: each step towards noise costs mean wait."""
    rng = Streams(3).rng("lengths")
    lengths = np.ceil(rng.lognormal(3.0, 1.0, 300)).astype(int).tolist()
    requests = [RequestSpec(i, 0.0, 10, n) for i, n in enumerate(lengths)]
    scheduler = SchedulerConfig(1, 512, max_model_len=4096)
    study = make_study(requests, scheduler, CacheConfig(600), ConstantCost(0.01))
    waits = [
        mean_wait_s(simulate(under("shortest-predicted", study, predicted_length_error=error)))
        for error in (0.0, 0.5, 5.0)
    ]
    assert waits[0] < waits[1] < waits[2] < mean_wait_s(simulate(study))


def test_earliest_deadline_meets_every_deadline_that_can_be_met() -> None:
    """All there at once, with limits that leave just enough for each in order of deadline."""
    limits_s = [0.40, 0.10, 0.30, 0.20]
    requests = [RequestSpec(i, 0.0, 10, 10, priority=i) for i in range(4)]
    ttft_s = dict(enumerate(limits_s))

    def num_met(name: str) -> int:
        scheduler = SchedulerConfig(1, 512, max_model_len=4096)
        study = make_study(requests, scheduler, CacheConfig(600), ConstantCost(0.01))
        given = {"policy_options": {"ttft_s": ttft_s}} if name != FCFS else {}
        first_token_s = simulate(under(name, study, **given)).requests["first_token_s"]
        return int((first_token_s <= limits_s).sum())

    assert num_met(FCFS) == 2
    assert num_met("earliest-deadline") == 4


def test_without_limits_of_ones_own_deadlines_are_the_studys() -> None:
    """One limit for all: earliest deadline is first come, first served."""
    study = replace(busy_study(FCFS), slo=Slo(ttft_s=0.5))
    study = replace(study, engine=replace(study.engine, cache=CacheConfig(900, 8)))
    engine = {"policy_options": {}}
    assert differences(simulate(under("earliest-deadline", study, **engine)), simulate(study)) == []


class Served:
    """Service of each tenant over time, as the paper counts it, off a run's decisions."""

    def __init__(self) -> None:
        self.totals = {"a": 0.0, "b": 0.0}
        self.history: list[tuple[float, float]] = []

    def add(self, tenant: str, service: float) -> None:
        self.totals[tenant] += service
        self.history.append((self.totals["a"], self.totals["b"]))


def two_backlogged(name: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Served, float]:
    """Tenant a sends 90 requests, then b sends 30 longer ones; until the first of them runs dry."""
    served = Served()
    requests = [RequestSpec(i, 0.0, 20, 20, tenant="a") for i in range(90)]
    requests += [RequestSpec(90 + i, 0.0, 60, 40, tenant="b") for i in range(30)]
    max_num_seqs, pool_tokens = 6, 6 * 104
    scheduler = SchedulerConfig(max_num_seqs, 512, max_model_len=112)
    study = make_study(
        requests, scheduler, CacheConfig(1 + pool_tokens // 8, 8), ConstantCost(0.01), leap=False
    )
    run = simulate(under(name, study))
    tenants = {r.request_id: r.tenant for r in requests}
    backlog_s = min(
        float(run.requests["first_scheduled_s"][ids].max()) for ids in (slice(90), slice(90, 120))
    )
    events = []
    for row in range(len(requests)):
        tenant = str(tenants[row])
        first_s, last_s = (run.requests[c][row] for c in ("first_token_s", "last_token_s"))
        num_prompt = int(run.requests["num_prompt_tokens"][row])
        num_out = int(run.requests["num_output_tokens"][row])
        events.append((float(run.requests["first_scheduled_s"][row]), row, tenant, num_prompt))
        events += [(t, row, tenant, 2) for t in np.linspace(first_s, last_s, num_out)]
    for at_s, _, tenant, service in sorted(events):
        if at_s < backlog_s:
            served.add(tenant, service)
    assert run.requests["num_preemptions"].sum() == 0
    longest_prompt = 60
    return served, 2 * max(1 * longest_prompt, 2 * pool_tokens)


def largest_difference(served: Served) -> float:
    """Over all intervals: the range of the difference of the two totals."""
    differences = [a - b for a, b in served.history]
    return max(differences) - min(differences)


def test_service_of_backlogged_tenants_differs_by_no_more_than_the_papers_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fair, bound = two_backlogged("virtual-token-counter", monkeypatch)
    unfair, _ = two_backlogged(FCFS, monkeypatch)
    assert len(fair.history) > 500
    assert largest_difference(fair) <= bound
    assert largest_difference(unfair) > bound


def test_a_tenant_with_few_requests_is_not_kept_waiting_by_one_with_many() -> None:
    requests = [RequestSpec(i, 0.0, 20, 20, tenant="many") for i in range(40)]
    requests += [RequestSpec(40 + i, 0.1, 20, 20, tenant="few") for i in range(3)]
    wait_s = {}
    for name in (FCFS, "virtual-token-counter"):
        run = one_by_one(requests, name).requests
        wait_s[name] = float((run["first_scheduled_s"] - run["arrival_s"])[40:].max())
    assert wait_s["virtual-token-counter"] < wait_s[FCFS] / 5


def test_feedback_favours_short_jobs_without_predictions() -> None:
    """Prompts are all alike; only what they turn out to need differs. FastServe's claim: short
    ones end sooner than under first come, first served, which lets a long one run to its end."""
    lengths = [400, 5, 5, 300, 5, 5, 5, 5]
    requests = [RequestSpec(i, 0.05 * i, 10, n) for i, n in enumerate(lengths)]
    short = np.array(lengths) == 5
    e2e_s = {}
    for name in (FCFS, "multi-level-feedback"):
        run = one_by_one(requests, name).requests
        assert set(run["state"]) == {"finished"}
        e2e_s[name] = (run["last_token_s"] - run["arrival_s"])[short].mean()
        assert (run["num_preemptions"].sum() > 0) == (name != FCFS)
    assert e2e_s["multi-level-feedback"] < e2e_s[FCFS] / 10


def test_feedback_preempts_for_blocks_too() -> None:
    """Seats for all, but a pool that one long request fills: a short one gets in at once."""
    requests = [RequestSpec(0, 0.0, 60, 180), RequestSpec(1, 1.5, 40, 3)]
    scheduler = SchedulerConfig(8, 512, max_model_len=256, enable_chunked_prefill=True)
    waits = {}
    for name in (FCFS, "multi-level-feedback"):
        study = make_study(requests, scheduler, CacheConfig(31, 8), ConstantCost(0.01))
        run = simulate(under(name, study)).requests
        waits[name] = float(run["first_scheduled_s"][1] - 1.5)
    assert waits["multi-level-feedback"] < 0.011 < waits[FCFS]


def resolved(**engine: Any) -> ResolvedStudy:
    study = {"trace": {"sample": True, "limit": 20}, "model": "llama-3.1-8b", "hardware": "h100"}
    return resolve_study({**study, "engine": engine}, "s.yaml")


def test_a_study_names_its_policy_and_says_where_it_steps() -> None:
    plain = resolved(scheduling_policy="shortest-predicted", predicted_length_error=0.2)
    assert plain.engine.queue_policy == "shortest-predicted"
    assert plain.engine.scheduler.policy == FCFS
    assert not [w for w in plain.warnings if "engine.leap" in w]
    fair = resolved(scheduling_policy="virtual-token-counter", policy_options={"output_weight": 3})
    assert fair.engine.policy_options == {"output_weight": 3}
    said = simulate(fair).info
    assert [w for w in said.warnings if "steps are taken one by one" in w]
    assert said.decides_as == f"vLLM {VLLM_VERSION} with virtual-token-counter queues"
    assert simulate(resolved()).info.decides_as == f"vLLM {VLLM_VERSION}"
    quiet = resolved(scheduling_policy="virtual-token-counter", leap=False)
    assert not [w for w in quiet.warnings if "engine.leap" in w]


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        ({"scheduling_policy": "sjf"}, "engine.scheduling_policy: unknown scheduling policy 'sjf'"),
        ({"policy_options": {"x": 1}}, "engine.policy_options: the scheduling policy 'fcfs' has"),
        ({"predicted_length_error": 0.1}, "asks for no predictions"),
        (
            {"scheduling_policy": "shortest-prompt", "scheduler": "vllm"},
            "is not one of the policies of the scheduler 'vllm': fcfs and priority",
        ),
        (
            {"scheduling_policy": "shortest-prompt", "policy_options": {"x": 1}},
            "has no option 'x'",
        ),
    ],
)
def test_what_can_not_be_is_refused(engine: dict[str, Any], said: str) -> None:
    with pytest.raises(StudyError) as refused:
        resolved(**engine)
    assert said in str(refused.value)


def test_a_key_that_is_none_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = [RequestSpec(i, 0.0, 8, 4) for i in range(3)]
    scheduler = SchedulerConfig(1, 64, max_model_len=64)
    study = make_study(requests, scheduler, CacheConfig(40, 8), ConstantCost(0.01))
    name = f"{__name__}:nan_key"
    monkeypatch.setitem(sys.modules, __name__, sys.modules[nan_key.__module__])
    with pytest.raises(policies.PolicyError, match=r"gave the key .* none of them NaN"):
        simulate(under(name, study))


def nan_key(request: policies.QueuedRequestView) -> policies.Key:
    return (float("nan"),)


@pytest.mark.parametrize(("name", "cost"), list(product(BUILT_IN, [LinearCost(0.01, 1e-4)])))
def test_two_runs_are_the_same(name: str, cost: LinearCost) -> None:
    study = replace(busy_study(name), cost_model=cost)
    assert differences(simulate(study), simulate(study)) == []
