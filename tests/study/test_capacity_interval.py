"""The interval of a capacity answer: known shifts give known ends, wider errors wider ones.

The profile here has every step of one token last the same time, so that one request at a time with
one token is an M/D/1 queue whose service time is the profile's, and an error of the profile is an
error of the service time.
"""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import t

from calibration import StepShape
from sim.cli.app import run_app
from sim.config import resolve_study
from sim.study.bracket import largest_rate, smallest_count_near
from sim.study.capacity import Search, run_search
from sim.study.capacity_folder import read_capacity
from sim.study.capacity_interval import count_range, rate_interval
from sim.study.capacity_run import Question, run_searches
from sim.study.plan import make_plan
from sim.study.profile_members import Member, member_cost
from sim.study.slo import Limit
from tests.calibration.cost_models import profile_document
from tests.study.studies import chat_study, queue_study, write_study
from tests.study.test_capacity import MEAN_3, Step

ONE_TOKEN = StepShape(1, 1, 0, 0, ((1, 0),))


def queue_profile(folder, dense_error, name="profile.json"):
    """A profile in which a step of one token lasts one second, nearly all of it dense layers."""
    document = profile_document()
    tables = document["tables"]
    tables["dense"]["time_us"] = [999_999.0] * 5
    tables["logits"]["time_us"] = [0.5] * 3
    tables["prefill_attention"]["time_us"] = [[0.5] * 3] * 4
    tables["prefill_attention"]["new_tokens"][0] = 1
    document["step_overhead_us"] = 0.0
    if dense_error is not None:
        document["fit"] = {"dense": {"mean": dense_error, "num_points": 9}}
    path = folder / name
    path.write_text(json.dumps(document))
    return {"kind": "profile", "path": str(path)}


def profile_queue(folder, dense_error, num_requests=1500, rate_per_s=0.3):
    return queue_study(num_requests, rate_per_s, cost_model=queue_profile(folder, dense_error))


def mean_3_rate(service_s):
    """M/D/1: s (1 + r / (2 (1 - r))) = 3 where r is the utilisation, so the rate is r / s."""
    u = 3.0 / service_s - 1
    return 2 * u / (1 + 2 * u) / service_s


def answers(study, **question):
    plan = make_plan({**study, "sweep": {"executor": "serial"}}, "x")
    wanted = Question(slo=["ttft_mean_s=3"], accept_short=True, **question)
    (group,) = run_searches(plan, wanted, lambda _: None)
    own = [f for f in group.founds if f.search.is_plain]
    return own, [f for f in group.founds if not f.search.is_plain], group


@pytest.mark.parametrize("number", [0, 2])
def test_a_member_s_rate_is_the_formula_s_for_its_step_times(tmp_path, number):
    """Times that are all f as long, under a limit L, are the same queue as 1 and L / f, slowed by
    f: the very same arrivals give the same answer, to the tolerance of both brackets."""
    values = profile_queue(tmp_path, 0.3)
    member = Member(number, 4, 7)
    service_s = member_cost(resolve_study(values, "x"), member).step_time_s(ONE_TOKEN)
    found = run_search(Search("rate", "q", values, MEAN_3, 1, member=member))
    same = run_search(Search("rate", "q", values, (Limit("ttft_mean_s", 3.0 / service_s),), 1))
    assert abs(service_s - 1) > 0.02
    assert found.value * service_s == pytest.approx(same.value, rel=0.021)
    assert found.value == pytest.approx(mean_3_rate(service_s), rel=0.08)


def test_the_interval_is_the_spread_of_the_formula_s_rates(tmp_path):
    """Eight members of known step times: their rates and so the spread are known."""
    own, members, _ = answers(profile_queue(tmp_path, 0.5))
    study = resolve_study(own[0].search.values, "x")
    services = [member_cost(study, f.search.member).step_time_s(ONE_TOKEN) for f in members]
    shifts = np.log([mean_3_rate(s) / mean_3_rate(1.0) for s in services])
    reach = t.ppf(0.975, 8) * math.sqrt(np.mean(shifts**2))
    found = rate_interval(own, members)
    assert len(members) == 8
    assert found.estimate == own[0].value
    assert math.log(found.high / found.low) / 2 == pytest.approx(reach, rel=0.15)


def test_a_wider_error_of_the_profile_gives_a_wider_interval(tmp_path):
    widths = []
    for error in (0.0, 0.3, 0.8):
        own, members, _ = answers(profile_queue(tmp_path, error))
        found = rate_interval(own, members)
        widths.append(math.log(found.high / found.low))
    assert widths[0] < widths[1] < widths[2]
    # Without an error of its own the profile keeps the 5 % of whole steps, times -1.3, the slope
    # of log rate against log service here, and Student's factor. The root mean square of eight
    # draws is within 0.3 and 1.9 times its expectation in 99.9 % of cases.
    assert 0.3 < widths[0] / (2 * 2.31 * 1.3 * 0.05) < 1.9


def fake(found, value, seed=1, member=None, trace="a", next_bad=None):
    search = replace(found.search, seed=seed, member=member)
    return replace(found, search=search, value=value, next_bad=next_bad, trace_sha256=trace)


@pytest.fixture(scope="module")
def found():
    return run_search(Search("rate", "q", queue_study(120, 0.3), MEAN_3, 1))


def test_a_known_shift_of_all_members_is_the_interval_s_reach(found):
    """Half of them x % faster, half x % slower: the spread about the study's own answer is x."""
    own = fake(found, 10.0)
    members = [fake(found, 10 * math.exp(x), member=Member(i, 8, 1))
               for i, x in enumerate([0.05, -0.05] * 4)]  # fmt: skip
    interval = rate_interval([own], members)
    assert interval.estimate == pytest.approx(10.0)
    assert interval.high == pytest.approx(10 * math.exp(t.ppf(0.975, 8) * 0.05))
    assert interval.low == pytest.approx(10 * math.exp(-t.ppf(0.975, 8) * 0.05))


def test_seeds_alone_give_student_s_interval_of_the_logarithms(found):
    seeds = [fake(found, v, seed=i, trace=str(i)) for i, v in enumerate([9.0, 10.0, 11.0])]
    interval = rate_interval(seeds)
    logs = np.log([9, 10, 11])
    reach = t.ppf(0.975, 2) * logs.std(ddof=1) / math.sqrt(3)
    assert math.log(interval.high) == pytest.approx(logs.mean() + reach)
    assert rate_interval(seeds[:1]) is None
    assert rate_interval([seeds[0], fake(found, 9.0, seed=5, trace="0")]) is None


def test_two_sources_are_wider_than_either(found):
    rates = [9.6, 10, 10.4, 9.9]
    seeds = [fake(found, v, seed=i, trace=str(i)) for i, v in enumerate(rates)]
    alike = [fake(found, 10.0, seed=i, trace=str(i)) for i in range(4)]

    def width(seeds, ratios=()):
        members = [
            fake(found, ratio * s.value, seed=s.search.seed, member=Member(0, 4, 0))
            for s, ratio in zip(seeds, ratios, strict=False)
        ]
        interval = rate_interval(seeds, members)
        return math.log(interval.high / interval.low)

    shifts = (0.95, 1.06, 1.01, 0.97)
    assert width(seeds, shifts) > max(width(seeds), width(alike, shifts)) > 0


def test_a_member_that_nothing_meets_leaves_no_lower_end(found):
    own, nothing = fake(found, 10.0), fake(found, None, member=Member(0, 2, 1))
    interval = rate_interval([own], [nothing, fake(found, 9.0, member=Member(1, 2, 1))])
    assert interval.low == 0
    assert count_range([own], [nothing]) == (10.0, math.inf)


@pytest.mark.parametrize("truth", [1, 2, 9, 30, 64])
@pytest.mark.parametrize("guess", [1, 8, 10, 33, 64])
def test_a_count_near_a_guess_is_the_smallest(truth, guess):
    found = smallest_count_near(lambda count: Step(count >= truth), guess, 64)
    assert (found.best, found.first_bad) == (truth, truth - 1 or None)
    if abs(guess - truth) <= 1:
        assert len(found.probes) <= 4


def test_no_count_near_a_guess_may_do():
    assert smallest_count_near(lambda _: Step(False), 9, 10).best is None


def test_small_steps_find_a_rate_that_is_near_with_few_probes():
    for truth in (9.3, 9.9, 10.3, 11.4):
        found = largest_rate(lambda rate, truth=truth: Step(rate <= truth), 10.0, 0.02, 1.04)
        assert found.best <= truth < found.first_bad <= 1.02 * found.best * (1 + 1e-9)
        assert len(found.probes) <= 7


def test_replicas_get_a_range_over_the_profile_s_errors(tmp_path):
    """3.5 a second at 0.8 a replica needs 4.4: with errors of 20 % the counts differ."""
    own, members, _ = answers(profile_queue(tmp_path, 0.8, rate_per_s=3.5), find="replicas")
    low, high = count_range(own, members)
    assert own[0].value == 5
    assert low < 5 < high
    study = resolve_study(own[0].search.values, "x")
    for found in members:
        service_s = member_cost(study, found.search.member).step_time_s(ONE_TOKEN)
        assert found.value == pytest.approx(3.5 / mean_3_rate(service_s), abs=1.2)


def capacity(tmp_path, values, *arguments):
    out = ("--out", str(tmp_path / "out"), "--jobs", "1")
    return run_app(["capacity", str(write_study(tmp_path, values)), "--slo", "ttft_mean_s=3",
                    "--accept-short", *arguments, *out])  # fmt: skip


def test_the_command_says_what_the_interval_covers(tmp_path, capsys):
    values = profile_queue(tmp_path, 0.3, 300)
    assert capacity(tmp_path, values, "--seeds", "2", "--profile-members", "3") == 0
    said = capsys.readouterr().out
    assert "95% interval" in said
    assert "covers 2 seeds and the profile's errors (3 variants of it)" in said
    assert "variant 3 of 3 of the profile" in said
    (answer,) = read_capacity(tmp_path / "out")["answers"]
    assert answer["spread"]["low"] < answer["value"] < answer["spread"]["high"]


WITHOUT = {
    "no record": (lambda folder: queue_profile(folder, None), "the measured profile has none"),
    "roofline": (lambda _: {"kind": "roofline"}, "the cost model is roofline, which has none"),
    "constant": (lambda _: {"kind": "constant", "step_s": 1.0}, "the cost model is constant"),
}


@pytest.mark.parametrize("name", WITHOUT)
def test_the_command_says_why_step_times_are_not_covered(tmp_path, capsys, name):
    cost_of, said = WITHOUT[name]
    values = queue_study(200, 0.3, cost_model=cost_of(tmp_path))
    capacity(tmp_path, values, "--slo", "ttft_p50_s=2")
    out = capsys.readouterr().out
    assert "no interval; not covered: other seeds (--seeds 5 takes five); " in out
    assert "what a run of more than 200 requests would pile up" in out
    assert f"; the error of step times: {said}" in out


def test_one_member_is_refused(tmp_path, capsys):
    assert capacity(tmp_path, chat_study(120), "--profile-members", "1") == 2
    assert "one says nothing of a spread" in capsys.readouterr().err
