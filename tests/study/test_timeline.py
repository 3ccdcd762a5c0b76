"""The timeline against a run written down by hand, a schema of the format, and its size limit."""

import json
from collections import defaultdict

import pytest

from sim.cli.app import run_app
from sim.config import resolve_study
from sim.errors import ResultError
from sim.result import save
from sim.simulation import simulate
from sim.timeline import make_timeline, timeline_text
from tests.sim.hand_run import hand_run
from tests.study.studies import chat_study

jsonschema = pytest.importorskip("jsonschema", reason="jsonschema comes with the dev extra")

NUMBER = {"type": "number"}
NOT_NEGATIVE = {"type": "number", "minimum": 0}
WHERE = {"pid": {"type": "integer"}, "tid": {"type": "integer"}, "name": {"type": "string"}}


def event(phase, required, **properties):
    kind = {"ph": {"const": phase}, **WHERE, **properties}
    return {"properties": kind, "required": ["ph", "pid", "tid", "name", *required]}


# "Trace Event Format" (Google, 2016): the phases that are used here, with what each must have.
SCHEMA = {
    "type": "object",
    "required": ["traceEvents"],
    "properties": {
        "displayTimeUnit": {"enum": ["ms", "ns"]},
        "otherData": {"type": "object"},
        "traceEvents": {
            "type": "array",
            "items": {
                "oneOf": [
                    event("X", ["ts", "dur", "cat"], ts=NUMBER, dur=NOT_NEGATIVE),
                    event(
                        "C",
                        ["ts", "args"],
                        ts=NUMBER,
                        args={"type": "object", "additionalProperties": NUMBER, "minProperties": 1},
                    ),
                    event("b", ["ts", "id", "cat"], ts=NUMBER, cat={"type": "string"}),
                    event("e", ["ts", "id", "cat"], ts=NUMBER, cat={"type": "string"}),
                    event("M", ["args"], args={"type": "object"}),
                ]
            },
        },
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def starved():
    """A pool so small that requests wait and are preempted, on two replicas."""
    engine = {"num_gpu_blocks": 60, "max_num_seqs": 8, "max_model_len": 900}
    values = chat_study(60, replicas=2, engine=engine)
    values["trace"]["generator"]["output_tokens"] = {"median": 150.0, "sigma": 0.3}
    return simulate(resolve_study(values, "x"))


def events_of(timeline, phase):
    parsed = json.loads(timeline_text(timeline))
    return [e for e in parsed["traceEvents"] if e["ph"] == phase]


def test_it_is_in_the_schema(starved):
    jsonschema.validate(json.loads(timeline_text(make_timeline(starved))), SCHEMA)


def test_every_step_is_a_slice_on_its_replica(starved):
    slices = events_of(make_timeline(starved), "X")
    assert len(slices) == len(starved.steps["step"])
    by_replica = defaultdict(list)
    for s in slices:
        by_replica[s["pid"]].append((s["ts"], s["ts"] + s["dur"]))
    assert set(by_replica) == {0, 1}
    total_us = sum(end - start for spans in by_replica.values() for start, end in spans)
    length_s = starved.steps["end_s"] - starved.steps["start_s"]
    assert total_us == pytest.approx(1e6 * length_s.sum(), rel=1e-6)


def test_spans_are_closed_nested_and_whole(starved):
    timeline = make_timeline(starved)
    parsed = json.loads(timeline_text(timeline))["traceEvents"]
    open_spans = defaultdict(list)
    for e in parsed:
        if e["ph"] == "b":
            open_spans[e["id"]].append(e)
        elif e["ph"] == "e":
            begun = (
                open_spans[e["id"]].pop()
                if e["name"] == open_spans[e["id"]][-1]["name"]
                else open_spans[e["id"]].pop(0)
            )
            assert begun["ts"] <= e["ts"]
    assert not any(open_spans.values())
    names = {e["name"] for e in parsed if e["ph"] == "b"}
    assert {"prefill", "decode"} <= names
    assert "stalled: preempted" in names
    assert names & {"waiting: KV blocks", "waiting: sequences"}


def test_a_run_by_hand():
    timeline = make_timeline(hand_run())
    slices = events_of(timeline, "X")
    assert [(s["pid"], s["ts"], s["dur"]) for s in slices][:2] == [(0, 5e5, 5e5), (0, 1e6, 1e6)]
    spans = {(e["id"], e["name"]): e["ts"] for e in events_of(timeline, "b")}
    assert spans[0, "request 0"] == 0.0
    assert spans[0, "decode"] == 1e6
    assert spans[0, "stalled: left out of steps"] == 2e6
    assert not [key for key in spans if key[0] == 3]  # rejected: on no replica
    assert timeline.num_events == len(json.loads(timeline_text(timeline))["traceEvents"])


def test_a_window_and_a_limit(starved):
    whole = make_timeline(starved)
    assert not whole.is_cut
    part = make_timeline(starved, 0.5, 1.0)
    assert all(s["ts"] <= 1e6 and s["ts"] + s["dur"] >= 5e5 for s in events_of(part, "X"))
    small = make_timeline(starved, max_events=500)
    assert small.is_cut and small.num_events <= 500
    assert small.num_events > 150


def test_the_same_run_gives_the_same_bytes(starved):
    assert timeline_text(make_timeline(starved)) == timeline_text(make_timeline(starved))


@pytest.mark.parametrize("window", [(100.0, None), (2.0, 1.0)])
def test_an_empty_window_is_refused(starved, window):
    with pytest.raises(ResultError, match="nothing from"):
        make_timeline(starved, *window)


def test_a_limit_below_one_step_is_refused(starved):
    with pytest.raises(ResultError, match="too small"):
        make_timeline(starved, max_events=10)


def test_the_command(tmp_path, capsys, starved):
    folder = save(starved, tmp_path / "run", plots=False)
    assert run_app(["timeline", str(folder), "--max-events", "400"]) == 0
    captured = capsys.readouterr()
    assert "cut at" in captured.err
    parsed = json.loads((folder / "timeline.json").read_text())
    assert len(parsed["traceEvents"]) <= 400
    assert run_app(["timeline", str(tmp_path / "none")]) == 2
