"""Generators of bursts, days, stages, sessions and clients, against what they claim."""

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from traces import (
    Conversations,
    DiurnalArrivals,
    EmpiricalLengths,
    FixedLengths,
    Lognormal,
    OnOffArrivals,
    Pause,
    PoissonArrivals,
    PrefixTree,
    Stage,
    StagedArrivals,
    Trace,
    TraceError,
    WeibullArrivals,
    from_servegen,
    generate,
    session_numbers,
)


def rng(seed: int = 1) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


@pytest.mark.parametrize("cv", [0.3, 1.0, 2.0])
def test_weibull_gaps_have_rate_and_cv(cv: float) -> None:
    gaps = np.diff(WeibullArrivals(4.0, cv).times_s(40_000, rng()))
    assert gaps.mean() == pytest.approx(0.25, rel=4 * cv / math.sqrt(len(gaps)))
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.08)


def test_weibull_shape_one_is_exponential() -> None:
    assert WeibullArrivals(4.0, 1.0).shape == pytest.approx(1.0)


def test_bursts_have_the_mean_rate_and_are_burstier_than_poisson() -> None:
    times = OnOffArrivals(20.0, on_s=5.0, off_s=15.0, off_rate_per_s=1.0).times_s(60_000, rng())
    assert times[0] == 0.0
    assert np.all(np.diff(times) >= 0)
    # a quarter of the time at 20, the rest at 1; some 2,000 cycles
    assert len(times) / times[-1] == pytest.approx(0.25 * 20 + 0.75 * 1, rel=0.1)
    counts = np.bincount((times // 10).astype(int))
    assert counts.var() / counts.mean() > 5


def test_a_day_peaks_when_said_and_has_the_mean_rate() -> None:
    process = DiurnalArrivals(5.0, swing=0.8, peak_at_s=600.0, period_s=2_400.0)
    times = process.times_s(60_000, rng())
    phase = np.bincount((times % 2_400 // 600).astype(int))
    assert len(times) / times[-1] == pytest.approx(5.0, rel=0.03)
    # quarters of a cosine that peaks between the first and the second: 1 +- swing * 2 sin / pi
    swing = 0.8 * 2 / np.pi
    shares = np.array([1 + swing, 1 + swing, 1 - swing, 1 - swing]) / 4
    assert phase / len(times) == pytest.approx(shares, abs=0.01)


def test_stages_have_exact_counts() -> None:
    process = StagedArrivals((Stage(2.0, 100.0), Stage(0.0, 50.0), Stage(7.5, 30.0)))
    assert process.num_requests == 425
    times = process.times_s(425, rng())
    counts = [
        int(((times >= a) & (times < b)).sum()) for a, b in ((0, 100), (100, 150), (150, 180))
    ]
    assert counts == [200, 0, 225]
    with pytest.raises(TraceError, match="num_requests: 400 is wrong; the stages have 425"):
        process.times_s(400, rng())


def test_empirical_lengths_can_be_apart() -> None:
    recorded = Trace.from_columns([0, 1, 2], [10, 20, 30], [1, 2, 3])
    prompts, outputs = EmpiricalLengths(recorded, joint=False).sample(9_000, rng())
    pairs, counts = np.unique(np.stack([prompts, outputs]), axis=1, return_counts=True)
    assert pairs.shape[1] == 9
    assert counts == pytest.approx(1_000, abs=130)


def test_trees_share_beginnings_level_by_level() -> None:
    tree = PrefixTree((3, 2), (100, 40), zipf_exponent=1.0)
    trace = generate(
        num_requests=6_000,
        arrivals=PoissonArrivals(1.0),
        lengths=FixedLengths(7, 3),
        system_prompts=tree,
        rng=rng(),
    )
    assert set(trace.num_prompt_tokens.tolist()) == {147}
    assert trace.prompts is not None
    firsts = [prompt[0][0] for prompt in trace.prompts]
    shares = [firsts.count(f"tree-{k}") / 6_000 for k in range(3)]
    assert shares == pytest.approx([6 / 11, 3 / 11, 2 / 11], abs=0.03)
    assert {prompt[1][0] for prompt in trace.prompts} == {
        f"tree-{a}.{b}" for a in range(3) for b in range(2)
    }


def test_tenants_and_adapters_are_mixed_by_weight() -> None:
    trace = generate(
        num_requests=8_000,
        arrivals=PoissonArrivals(1.0),
        lengths=FixedLengths(7, 3),
        tenant_weights={"b": 3.0, "a": 1.0},
        lora_weights={0: 1.0, 4: 1.0},
        rng=rng(),
    )
    assert trace.tenant is not None
    assert trace.lora_id is not None
    assert sum(tenant == "b" for tenant in trace.tenant) / 8_000 == pytest.approx(0.75, abs=0.02)
    assert (trace.lora_id == 4).mean() == pytest.approx(0.5, abs=0.02)


def talk(**changes: Any) -> Conversations:
    usual: dict[str, Any] = {
        "first_tokens": Lognormal(200, 0.4),
        "output_tokens": Lognormal(50, 0.3),
        "user_tokens": Lognormal(30, 0.0),
        "think_time": Pause(10.0),
        "mean_turns": 5.0,
        "system_tokens": 64,
    }
    return Conversations(**(usual | changes))


def test_turns_go_on_from_the_whole_history() -> None:
    trace = talk().generate(300, PoissonArrivals(1.0), rng())
    by_id = {request.request_id: request for request in trace}
    assert len(trace) / 300 == pytest.approx(5.0, rel=0.2)
    for request in trace:
        assert request.prompt[0] == ("system", 64)
        if request.parent_id is None:
            continue
        parent = by_id[request.parent_id]
        history = (*parent.prompt, (f"out:{parent.request_id}", parent.num_output_tokens))
        assert request.prompt[:-1] == history
        assert request.prompt[-1][1] == 30
        assert request.think_time_s == 10.0
        assert request.session_id == parent.session_id
        nominal_s = parent.arrival_s + 0.02 * parent.num_output_tokens + 10.0
        assert request.arrival_s == pytest.approx(nominal_s)
    assert int(session_numbers(trace).max()) + 1 == 300


def test_agents_call_tools() -> None:
    maker = talk(tool_share=0.7, tool_tokens=Lognormal(900, 0.0), tool_time=Pause(0.5))
    trace = maker.generate(400, PoissonArrivals(1.0), rng())
    pauses = [r.think_time_s for r in trace if r.think_time_s is not None]
    assert sum(pause == 0.5 for pause in pauses) / len(pauses) == pytest.approx(0.7, abs=0.05)
    tools = [r for r in trace if r.think_time_s == 0.5]
    assert {r.prompt[-1][1] for r in tools} == {900}


def test_sessions_end_at_the_context_limit() -> None:
    trace = talk(mean_turns=200.0, max_context_tokens=2_000).generate(
        20, PoissonArrivals(1.0), rng()
    )
    assert int((trace.num_prompt_tokens + trace.num_output_tokens).max()) <= 2_000
    assert len(trace) > 200


def test_same_seed_same_sessions() -> None:
    digests = [talk().generate(30, PoissonArrivals(1.0), rng(s)).content_sha256 for s in (1, 1, 2)]
    assert digests[0] == digests[1] != digests[2]


def client(folder: Path, number: int, rows: list[str], lengths: dict[int, float]) -> None:
    (folder / f"chunk-{number}-trace.csv").write_text("".join(f"{row}\n" for row in rows))
    table = {"0": {"input_tokens": str(lengths), "output_tokens": "{9: 1.0}"}}
    (folder / f"chunk-{number}-dataset.json").write_text(json.dumps(table))


def test_servegen_clients_keep_their_rates_and_lengths(tmp_path: Path) -> None:
    client(tmp_path, 1, ["0,2.0,1,Gamma,1.0,9", "600,0,0,,0,0"], {100: 0.25, 200: 0.75})
    client(tmp_path, 2, ["0,4.0,3,Weibull,0.5,9", "600,1.0,1,,0,0"], {7: 1.0})
    trace = from_servegen(tmp_path, 0.0, 1_200.0, rng())
    assert trace.tenant is not None
    tenants = np.array(list(trace.tenant))
    early = trace.arrival_s < 600
    assert (tenants[early] == "chunk-1").sum() == pytest.approx(1_200, abs=140)
    # Weibull with shape 0.5: cv 2.24, so the count of 2,400 has a deviation of some 110
    assert (tenants[early] == "chunk-2").sum() == pytest.approx(2_400, abs=450)
    assert set(tenants[~early]) == {"chunk-2"}
    own = trace.num_prompt_tokens[tenants == "chunk-1"]
    assert (own == 200).mean() == pytest.approx(0.75, abs=0.04)
    assert set(trace.num_output_tokens.tolist()) == {9}
    half = from_servegen(tmp_path, 0.0, 600.0, rng(), rate_scale=0.5)
    assert len(half) == pytest.approx(1_800, abs=350)


@pytest.mark.parametrize(("family", "shape"), [("Gamma", 1 / 9), ("Weibull", 0.5), ("", 0.0)])
def test_bursty_servegen_clients_of_few_requests_keep_their_rate(
    tmp_path: Path, family: str, shape: float
) -> None:
    """Ten requests a window, at a cv of 3, 2.2 and 1: begun at a mean gap they would be 17, 9 and
    0 % more. A renewal process in its stationary state has its rate in any window."""
    num_clients, num_draws = 300, 8
    for number in range(num_clients):
        rows = [f"0,{10 / 600},1,{family},{shape},9", "600,0,0,,0,0"]
        client(tmp_path, number, rows, {7: 1.0})
    counts = []
    for seed in range(num_draws):
        trace = from_servegen(tmp_path, 0.0, 600.0, rng(seed))
        assert trace.tenant is not None
        sent = Counter(trace.tenant)
        counts += [sent[f"chunk-{number}"] for number in range(num_clients)]
    error = float(np.std(counts)) / len(counts) ** 0.5
    assert error < 0.2
    assert abs(float(np.mean(counts)) - 10) < 4 * error


def test_servegen_sample_makes_a_day(shared_dir: Path) -> None:
    folder = shared_dir / "data/traces/servegen"
    trace = from_servegen(folder, 34_200.0, 36_000.0, rng())
    # rates 1.625, 2.447 and 2.818 a second in these three windows
    assert len(trace) == pytest.approx(600 * (1.625 + 2.447 + 2.818), rel=0.15)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: WeibullArrivals(1.0, 0.001), "cv: 0.001 is wrong"),
        (lambda: OnOffArrivals(1.0, 0.0, 1.0), "on_s: 0.0"),
        (lambda: OnOffArrivals(1.0, 1.0, 1.0, -1.0), "off_rate_per_s: -1.0"),
        (lambda: DiurnalArrivals(1.0, swing=1.5), "swing: 1.5"),
        (lambda: Stage(-1.0, 5.0), "rate_per_s: -1.0"),
        (lambda: StagedArrivals((Stage(0.1, 1.0),)), "stages: there is no request"),
        (lambda: PrefixTree((2,), (10, 20)), "branching"),
        (lambda: PrefixTree((0,), (10,)), "at least 1"),
        (lambda: Pause(-1.0), "median_s: -1.0"),
        (lambda: talk(mean_turns=0.5), "mean_turns: 0.5"),
        (lambda: talk(tool_share=2.0), "tool_share: 2.0"),
        (lambda: talk().generate(0, PoissonArrivals(1.0), rng()), "num_sessions: 0"),
        (lambda: from_servegen(Path("/absent"), 0.0, 1.0, rng()), "no client"),
    ],
)
def test_bad_parameters_are_refused(make: Any, words: str) -> None:
    with pytest.raises(TraceError, match=words):
        make()


@pytest.mark.parametrize("row", ["0,-1,1,,0,0", "0,x,1,,0,0", "0,1,1,Pareto,1,1", "0,1,1"])
def test_bad_servegen_rows_name_the_line(tmp_path: Path, row: str) -> None:
    client(tmp_path, 1, ["0,1.0,1,,0,0", row], {5: 1.0})
    with pytest.raises(TraceError, match=r"chunk-1-trace\.csv, line 2: "):
        from_servegen(tmp_path, 0.0, 600.0, rng())
