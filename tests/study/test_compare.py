"""Comparisons where the truth is known: nothing differs, or a known shift does."""

import json
import math

import numpy as np
import pytest

from sim.cli.app import run_app
from sim.errors import StudyError
from sim.study.compare import compare_pairs, wins_of
from sim.study.effects import METRICS, compare_metric
from sim.study.paired import Arm, Pair, run_pairs
from tests.study.studies import chat_study, queue_study, write_study

BY_NAME = {metric.name: metric for metric in METRICS}
TTFTS = ("ttft_mean_s", "ttft_p50_s", "ttft_p99_s")


def generator(seed):
    return np.random.Generator(np.random.PCG64(seed))


def sojourns(n, load, rng):
    """Times in an M/D/1 queue by Lindley's recursion, service one second."""
    steps = 1 - rng.exponential(1 / load, n)
    walk = np.concatenate([[0.0], np.cumsum(steps[1:])])
    return walk - np.minimum.accumulate(np.minimum(walk, 0.0)) + 1


def arm(values, priority=None):
    n = len(values)
    columns = dict.fromkeys(("ttft_s", "tpot_s", "e2e_s", "queue_time_s"), values)
    ones = np.ones(n, dtype=np.int64)
    requests = {
        "request_id": np.arange(n),
        "priority": np.zeros(n, np.int64) if priority is None else priority,
        "num_prompt_tokens": ones,
        "target_output_tokens": ones,
    }
    return Arm(columns, requests, {}, None, "", (), "a queue", True, 0)


def alarms(num_seeds, n, load, repeats, rng):
    """How often a difference is shown where A and B are independent runs of one thing."""
    shown = dict.fromkeys(TTFTS, 0)
    for _ in range(repeats):
        pairs = [
            Pair(seed, arm(sojourns(n, load, rng)), arm(sojourns(n, load, rng)))
            for seed in range(num_seeds)
        ]
        for name in TTFTS:
            effect = compare_metric(BY_NAME[name], pairs, rng)
            shown[name] += effect.verdict in ("lower", "higher")
    return {name: count / repeats for name, count in shown.items()}


@pytest.mark.parametrize("num_seeds", [3, 8])
def test_false_alarms_over_seeds_come_at_the_nominal_rate(num_seeds):
    """5 % of 200: within 1 and 10 % but for one chance in a thousand or less."""
    for rate in alarms(num_seeds, 300, 0.7, 200, generator(num_seeds)).values():
        assert 0.01 <= rate <= 0.10


def mean_alarms(n, load, repeats, rng):
    """How many means of single runs differ, of those that have an interval."""
    shown = known = 0
    for _ in range(repeats):
        pair = Pair(0, arm(sojourns(n, load, rng)), arm(sojourns(n, load, rng)))
        verdict = compare_metric(BY_NAME["ttft_mean_s"], [pair], rng).verdict
        known += verdict != "no interval"
        shown += verdict in ("lower", "higher")
    return shown, known


def test_false_alarms_of_one_run_s_mean_come_at_the_nominal_rate():
    """5 % of 1,500 is 3.5 to 6.5 % but for one chance in a hundred; requests taken for independent
    give five times as many."""
    rng = generator(1)
    runs = [mean_alarms(n, load, 500, rng) for n, load in ((1000, 0.5), (3000, 0.7), (5000, 0.8))]
    shown, known = (sum(counts) for counts in zip(*runs, strict=True))
    assert known > 0.9 * 1500
    assert 0.035 <= shown / known <= 0.065
    rng, naive = generator(2), 0
    for _ in range(60):
        a, b = sojourns(1500, 0.7, rng), sojourns(1500, 0.7, rng)
        error = math.sqrt(a.var() / 1500 + b.var() / 1500)
        naive += abs(a.mean() - b.mean()) > 1.96 * error
    assert naive / 60 > 0.25


def test_a_run_too_short_for_its_queue_has_no_interval_of_the_mean():
    """1,000 requests at 90 % are five of the queue's correlation times."""
    _, known = mean_alarms(1000, 0.9, 40, generator(3))
    assert known <= 4


def test_false_alarms_of_one_run_s_percentiles_are_rare():
    rng, shown = generator(4), {"ttft_p50_s": 0, "ttft_p99_s": 0}
    for _ in range(40):
        pair = Pair(0, arm(sojourns(1000, 0.5, rng)), arm(sojourns(1000, 0.5, rng)))
        for name in shown:
            effect = compare_metric(BY_NAME[name], [pair], rng)
            shown[name] += effect.verdict in ("lower", "higher")
    # 5 % of 40 is at most 6 but for one chance in two hundred.
    assert max(shown.values()) <= 6


def test_a_known_shift_is_found_and_measured():
    rng = generator(5)
    pairs = [Pair(s, arm(x := sojourns(500, 0.8, rng)), arm(0.7 * x)) for s in range(5)]
    effect = compare_metric(BY_NAME["ttft_p99_s"], pairs, rng)
    assert effect.verdict == "lower" and effect.is_better
    assert effect.interval.estimate == pytest.approx(-0.3)
    assert "TTFT p99 lower by 30 % [30, 30]" in effect.sentence()


def test_common_random_numbers_see_what_independent_runs_can_not():
    """A shift of 2 % with noise: paired it is shown, unpaired it drowns."""
    rng = generator(6)
    paired, apart = [], []
    for seed in range(6):
        x, y = sojourns(500, 0.8, rng), sojourns(500, 0.8, rng)
        noise = np.exp(0.05 * rng.standard_normal(500))
        paired.append(Pair(seed, arm(x), arm(1.02 * x * noise)))
        apart.append(Pair(seed, arm(x), arm(1.02 * y)))
    metric = BY_NAME["ttft_mean_s"]
    found = compare_metric(metric, paired, rng)
    assert found.verdict == "higher"
    assert found.interval.holds(0.02 + math.expm1(0.05**2 / 2))
    assert compare_metric(metric, apart, rng).verdict == "no difference shown"
    assert compare_metric(metric, apart, rng).seeds_needed > found.seeds_needed


def test_percentiles_of_too_few_requests_have_no_interval():
    rng = generator(7)
    pairs = [Pair(0, arm(sojourns(300, 0.5, rng)), arm(sojourns(300, 0.5, rng)))]
    assert compare_metric(BY_NAME["ttft_p99_s"], pairs, rng).verdict == "no interval"


def test_equal_runs_are_said_to_be_equal():
    x = sojourns(200, 0.8, generator(8))
    effect = compare_metric(BY_NAME["ttft_p50_s"], [Pair(0, arm(x), arm(x))], generator(9))
    assert effect.verdict == "no difference shown"
    assert "equal in every run" in effect.sentence()


def test_wins_and_losses_are_counted_request_by_request():
    a = np.array([1.0, 1.0, 1.0, 1.0, np.nan])
    b = np.array([0.5, 0.995, 2.0, 3.0, 1.0])
    wins = wins_of("x", [Pair(0, arm(a), arm(b))], [np.ones(5, bool)])
    assert (wins.num_requests, wins.faster, wins.slower) == (4, 0.25, 0.5)


def test_groups_by_priority_show_who_wins():
    rng = generator(10)
    level = np.tile([0, 1], 200)
    pairs = []
    for seed in range(5):
        x = sojourns(400, 0.8, rng)
        pairs.append(Pair(seed, arm(x, level), arm(np.where(level == 0, 0.5, 2.0) * x, level)))
    found = compare_pairs(pairs, "a", "b")
    means = {e.group: e.verdict for e in found.by_group if e.metric.name == "ttft_mean_s"}
    assert means == {"priority 0": "lower", "priority 1": "higher"}
    shares = {w.group: (w.faster, w.slower) for w in found.wins}
    assert shares == {"all": (0.5, 0.5), "priority 0": (1.0, 0.0), "priority 1": (0.0, 1.0)}


def test_two_servers_of_different_speed():
    """The simulator itself: a step of 0.8 s in place of 1 s, at a load where both are stable."""
    a = queue_study(300, 0.5)
    b = queue_study(300, 0.5, cost_model={"kind": "constant", "step_s": 0.8})
    pairs = run_pairs(a, b, [0, 1, 2, 3], jobs=1)
    effect = compare_metric(BY_NAME["e2e_mean_s"], pairs, generator(1))
    # M/D/1: s + r s / (2 (1 - r)) with r = 0.5 s: 1.5 s and 1.067 s
    assert effect.verdict == "lower"
    assert effect.interval.estimate == pytest.approx(1.0667 / 1.5 - 1, abs=0.05)


def test_seeds_that_change_nothing_are_run_once():
    fixed = chat_study(trace={"sample": True, "limit": 20})
    assert len(run_pairs(fixed, fixed, [0, 1, 2], jobs=1)) == 1


def test_other_requests_can_not_be_compared():
    with pytest.raises(StudyError, match="their requests differ"):
        run_pairs(chat_study(40), chat_study(41), [0], jobs=1)


def test_the_command_says_it_and_keeps_it(tmp_path, capsys):
    study = write_study(tmp_path, chat_study(60, slo={"ttft_s": 0.02}))
    out = tmp_path / "out"
    options = ("--seeds", "3", "--jobs", "1", "--out", str(out))
    assert run_app(["compare", str(study), "--key", "engine.max_num_seqs=256,2", *options]) == 0
    said = capsys.readouterr().out
    for words in ("TTFT mean higher by", "worse", "paired t over 3 seeds", "seeds for a precision"):
        assert words in said
    kept = json.loads((out / "compare.json").read_text())
    assert kept["seeds"] == [0, 1, 2]
    assert {"goodput_share", "ttft_p99_s"} <= {row["metric"] for row in kept["effects"]}
    assert (out / "compare.png").is_file() and (out / "table.csv").is_file()


WRONG = {
    "one study": (["A"], "give two studies"),
    "one value": (["A", "--key", "seed=1"], "two values"),
    "unknown key": (["A", "--key", "engine.max_num_seq=1,2"], "max_num_seqs"),
    "confidence": (["A", "A", "--confidence", "95"], "--confidence"),
    "precision": (["A", "A", "--precision", "0"], "--precision"),
}


@pytest.mark.parametrize("name", WRONG)
def test_bad_input_is_one_sentence(tmp_path, capsys, name):
    arguments, said = WRONG[name]
    study = str(write_study(tmp_path, chat_study()))
    assert run_app(["compare", *(study if a == "A" else a for a in arguments)]) == 2
    assert said in capsys.readouterr().err
