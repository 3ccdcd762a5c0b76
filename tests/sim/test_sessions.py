"""Load by sessions: instants, order, prefix hits, and exact replay of what a run sent."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sim import result as run_folder
from sim.config import resolve_study
from sim.errors import StudyError
from sim.run_result import RunResult
from sim.simulation import simulate
from sim.trace_export import export_run
from traces import RequestSpec, Trace, save

STEP_S = 0.01


def study(path: Path, load: dict[str, Any], **changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "trace": {"path": str(path)},
        "model": "llama-3.1-8b",
        "hardware": "h100-sxm-80gb",
        "engine": {"num_gpu_blocks": 4_000, "max_model_len": 8_000},
        "cost_model": {"kind": "constant", "step_s": STEP_S},
        "load": load,
    }
    return values | changes


def run(path: Path, load: dict[str, Any], **changes: Any) -> RunResult:
    return simulate(resolve_study(study(path, load, **changes), "test"))


def chains(number: int, length: int, think_s: float | None = 0.5) -> Trace:
    """`number` sessions that begin a second apart, each turn holding the ones before."""
    rows: list[RequestSpec] = []
    for session in range(number):
        prompt: tuple[tuple[int | str, int], ...] = (("system", 64),)
        for turn in range(length):
            number_now = len(rows)
            if turn:
                prompt = (*prompt, (f"out:{number_now - 1}", 20))
            prompt = (*prompt, (f"turn-{number_now}", 48))
            rows.append(
                RequestSpec(
                    number_now,
                    session * 1.0 + turn * 30.0,
                    sum(tokens for _, tokens in prompt),
                    20,
                    prompt,
                    session_id=f"s{session}",
                    parent_id=number_now - 1 if turn else None,
                    think_time_s=think_s if turn else None,
                )
            )
    return Trace.from_requests(rows)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "t.jsonl"
    save(chains(4, 3), path)
    return path


def test_the_next_turn_comes_after_completion_and_think_time(saved: Path) -> None:
    rows = run(saved, {"mode": "sessions"}).requests
    assert set(rows["state"]) == {"finished"}
    for number in range(12):
        if number % 3 == 0:
            assert rows["arrival_s"][number] == number / 3
        else:
            assert rows["arrival_s"][number] == rows["last_token_s"][number - 1] + 0.5


def test_the_next_turn_finds_prompt_and_output_of_the_last(saved: Path) -> None:
    rows = run(saved, {"mode": "sessions"}).requests
    # prompts of 112, 180 and 248 tokens in blocks of 16. The 2nd finds the 1st's prompt and 19 of
    # its 20 outputs (the last is never computed on), 131 tokens: 8 blocks. The 3rd finds 199: 12.
    assert rows["num_cached_tokens"].tolist() == [0, 128, 192] + [64, 128, 192] * 3


def test_open_replay_uses_the_recorded_times(saved: Path) -> None:
    rows = run(saved, {"mode": "open"}).requests
    assert rows["arrival_s"].tolist() == [0, 30, 60, 1, 31, 61, 2, 32, 62, 3, 33, 63]


def test_results_name_the_load(saved: Path) -> None:
    for mode in ("open", "sessions"):
        assert run(saved, {"mode": mode}).info.load == mode


def test_at_most_so_many_sessions_are_open(saved: Path) -> None:
    rows = run(saved, {"mode": "sessions", "concurrency": 2}).requests
    begin, end = rows["arrival_s"][::3], rows["last_token_s"][2::3]
    assert begin[:2].tolist() == [0.0, 0.0]
    # each later session begins the instant one is over
    assert begin[2:].tolist() == sorted(end.tolist())[:2]


def test_a_ramp_spreads_the_first_sessions(saved: Path) -> None:
    load = {"mode": "sessions", "concurrency": 4, "ramp_s": 8.0}
    assert run(saved, load).requests["arrival_s"][::3].tolist() == [0.0, 2.0, 4.0, 6.0]


def test_a_turn_without_a_pause_is_sent_with_the_last_token(tmp_path: Path) -> None:
    save(chains(1, 3, think_s=0.0), tmp_path / "t.jsonl")
    rows = run(tmp_path / "t.jsonl", {"mode": "sessions"}).requests
    assert rows["arrival_s"][1:].tolist() == rows["last_token_s"][:-1].tolist()


def test_a_refused_turn_does_not_hold_up_the_session(tmp_path: Path) -> None:
    rows = list(chains(2, 3))
    big = [
        RequestSpec(
            r.request_id,
            r.arrival_s,
            9_000 if r.request_id == 1 else 50,
            20,
            session_id=r.session_id,
            parent_id=r.parent_id,
            think_time_s=r.think_time_s,
        )
        for r in rows
    ]
    save(Trace.from_requests(big), tmp_path / "t.jsonl")
    table = run(tmp_path / "t.jsonl", {"mode": "sessions"}).requests
    assert table["state"].tolist() == ["finished", "rejected", *["finished"] * 4]
    assert table["arrival_s"][2] == table["arrival_s"][1] + 0.5


def test_a_long_session_of_refusals_ends(tmp_path: Path) -> None:
    rows = [
        RequestSpec(
            i, float(i), 9_000, 5, parent_id=i - 1 if i else None, think_time_s=0.0 if i else None
        )
        for i in range(3_000)
    ]
    rows.append(RequestSpec(3_000, 5_000.0, 9, 5))
    save(Trace.from_requests(rows), tmp_path / "t.jsonl")
    table = run(tmp_path / "t.jsonl", {"mode": "sessions", "concurrency": 1}).requests
    assert (table["state"] == "rejected").sum() == 3_000


@pytest.mark.parametrize(
    ("think_s", "load", "words"),
    [
        (None, {}, "4 of 4 follow-up requests have no recorded think time"),
        (0.5, {"concurrency": 9}, "9 sessions at once need as many, the trace has 2"),
    ],
)
def test_what_the_trace_lacks_is_said(
    tmp_path: Path, think_s: float | None, load: dict[str, Any], words: str
) -> None:
    save(chains(2, 3, think_s), tmp_path / "t.jsonl")
    with pytest.raises(StudyError, match=words):
        run(tmp_path / "t.jsonl", {"mode": "sessions", **load})


def test_unrecorded_think_times_can_be_given(tmp_path: Path) -> None:
    save(chains(1, 2, think_s=None), tmp_path / "t.jsonl")
    rows = run(tmp_path / "t.jsonl", {"mode": "sessions", "think_time_s": 7.0}).requests
    assert rows["arrival_s"][1] == rows["last_token_s"][0] + 7.0


def test_a_trace_without_sessions_is_refused(tmp_path: Path) -> None:
    save(Trace.from_columns([0, 1], [9, 9], [2, 2]), tmp_path / "t.csv")
    with pytest.raises(StudyError, match="needs a trace in which requests follow one another"):
        run(tmp_path / "t.csv", {"mode": "sessions"})


CONVERSATIONS = {
    "num_sessions": 25,
    "arrivals": {"process": "weibull", "rate_per_s": 4.0, "cv": 1.5},
    "first_tokens": {"median": 300.0, "sigma": 0.8},
    "output_tokens": {"median": 60.0, "sigma": 0.5},
    "user_tokens": {"median": 40.0, "sigma": 0.5},
    "think_time": {"median_s": 1.0, "sigma": 0.7},
    "system_tokens": 100,
    "tool_share": 0.4,
    "max_context_tokens": 7_000,
    "priority_weights": {0: 1.0, 1: 1.0},
}
FLAT = {
    "num_requests": 60,
    "rate_per_s": 8.0,
    "prompt_tokens": {"median": 500.0, "sigma": 0.9, "highest": 6_000},
    "output_tokens": {"median": 50.0, "sigma": 0.5},
    "system_prompts": {"share": 0.5, "num_tokens": [200, 90]},
}


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
@pytest.mark.parametrize("leap", [True, False])
@pytest.mark.parametrize(
    ("trace", "load", "replicas"),
    [
        ({"generator": FLAT}, {"mode": "open"}, 2),
        ({"generator": FLAT}, {"mode": "closed", "concurrency": 6}, 1),
        ({"generator": FLAT}, {"mode": "closed", "concurrency": 6, "client_delay_s": 0.03}, 2),
        ({"conversations": CONVERSATIONS}, {"mode": "sessions"}, 2),
        ({"conversations": CONVERSATIONS}, {"mode": "sessions", "concurrency": 5}, 1),
        ({"conversations": CONVERSATIONS, "thin": 0.7}, {"mode": "sessions"}, 1),
    ],
)
def test_replaying_what_a_run_sent_is_the_same_run(
    tmp_path: Path, trace: Any, load: Any, replicas: int, leap: bool, suffix: str
) -> None:
    values: dict[str, Any] = study(Path("none"), load, trace=trace, replicas=replicas)
    values["engine"] = {
        "num_gpu_blocks": 900,  # small: some requests are preempted
        "max_model_len": 8_000,
        "scheduling_policy": "priority",
        "leap": leap,
    }
    values["cost_model"] = {"kind": "linear", "base_s": 0.004, "per_token_s": 2e-5}
    first = simulate(resolve_study(values, "test"))
    run_folder.save(first, tmp_path / "run", plots=False)
    save(export_run(tmp_path / "run").trace, tmp_path / f"sent{suffix}")
    values["trace"] = {"path": str(tmp_path / f"sent{suffix}")}
    for mode in (
        ({"mode": "open"}, {"mode": "sessions"})
        if "concurrency" not in load
        else ({"mode": "open"},)
    ):
        if mode["mode"] == "sessions" and load["mode"] != "sessions":
            continue
        again = simulate(resolve_study(values | {"load": mode}, "test"))
        for name in ("requests", "steps", "gaps"):
            ours, theirs = getattr(first, name), getattr(again, name)
            for column in ours:
                np.testing.assert_array_equal(ours[column], theirs[column], err_msg=column)
