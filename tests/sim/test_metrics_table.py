"""The table in the terminal says what the summary says, in units that people read."""

import dataclasses

import pytest
from rich.console import Console

from sim.metrics import summarise
from sim.metrics.units import three_digits
from sim.summary_table import fact_rows, render_summary
from tests.sim.hand_run import hand_run
from tests.sim.toy_run import toy_run


def rendered(run, width=110) -> str:
    console = Console(width=width, no_color=True)
    with console.capture() as capture:
        console.print(render_summary(summarise(run)))
    return capture.get()


def facts(run) -> dict[str, dict[str, str]]:
    return {heading: dict(rows) for heading, rows in fact_rows(summarise(run))}


def test_the_hand_made_run_in_words():
    got = facts(hand_run())
    assert got["Requests"] == {
        "arrived": "4",
        "finished": "2 (length 2)",
        "rejected": "1 (max_model_len 1)",
        "aborted": "1 (client 1)",
        "unfinished": "0",
    }
    assert got["Goodput"]["SLO"] == "TTFT <= 1.5 s and E2E <= 6 s"
    assert got["Goodput"]["share of finished"] == "50.0 %"
    assert got["KV cache"]["usage"] == "mean 25.0 % (46.9 % while busy), peak 100.0 %"
    assert got["Cost model"]["model"] == "constant"
    assert got["Cost model"]["host time"] == "none: engine.host_overhead_s is 0"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "-"),
        (0.01234, "0.0123"),
        (99.94, "99.9"),
        (99.96, "100"),
        (1116.7, "1,117"),
        (7, "7"),
    ],
)
def test_three_digits_are_shown_but_no_whole_number_is_cut(value, shown):
    assert three_digits(value) == shown


def test_replicas_with_other_pools_are_told_apart():
    section = dict(fact_rows(summarise(hand_run())))["KV cache"]
    pools = [value for name, value in section if name == "blocks a replica"]
    assert pools == ["5 of 4 tokens, given", "9 of 4 tokens, given"]


def test_host_time_that_is_in_a_run_is_said():
    run = hand_run()
    replicas = tuple(dataclasses.replace(r, host_overhead=True) for r in run.info.replicas)
    info = dataclasses.replace(run.info, replicas=replicas)
    got = facts(dataclasses.replace(run, info=info))
    assert got["Cost model"]["host time"] == "as the study gives it"


def test_latencies_are_in_the_table():
    lines = [line.split("│")[1:-1] for line in rendered(hand_run()).splitlines() if "TTFT " in line]
    cells = [cell.strip() for cell in lines[0]]
    assert cells[:4] == ["TTFT", "s", "1.50", "1.50"]
    assert cells[-2:] == ["2", "2"]


def test_a_partial_run_and_its_warnings_are_said():
    run = hand_run()
    info = dataclasses.replace(run.info, partial=True, warnings=("times out of order: 3",))
    text = rendered(dataclasses.replace(run, info=info))
    assert "PARTIAL: the run was stopped before its end" in text
    assert "warning: times out of order: 3" in text


@pytest.mark.parametrize("width", [60, 80, 200])
def test_an_empty_run_renders_at_any_width(width):
    text = rendered(toy_run([]), width)
    assert "nan" not in text.lower()
    assert max(len(line) for line in text.splitlines()) <= width


def test_many_replicas_do_not_flood_the_table():
    rows = facts(toy_run([], num_replicas=50))["Replicas"]
    assert list(rows.values())[-1] == "... and 42 more"
