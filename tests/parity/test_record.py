"""Recording and shrinking: with a stand-in for vLLM, and with the real one if told where it is.

Set HEADWAY_VLLM_PYTHON to the path of a Python that has vLLM to run what needs the real package.
"""

import os
import sys
from pathlib import Path

import pytest

from sim.cli.app import run_app
from sim.conformance import ConformanceError, first_difference, read_cases, replay_case
from sim.conformance.families import FAMILIES
from sim.conformance.record import Recorder
from sim.conformance.shrink import replay_differs, shrink_case
from sim.conformance.workloads import make_workloads
from tests.parity.case_files import FILES, cases_by_family


@pytest.fixture(scope="module")
def vllm_python() -> Path:
    path = os.environ.get("HEADWAY_VLLM_PYTHON")
    if not path:
        pytest.skip("HEADWAY_VLLM_PYTHON does not name a Python with vLLM")
    return Path(path)


@pytest.fixture(scope="module")
def recorder(vllm_python):
    with Recorder(vllm_python) as recorder:
        yield recorder


@pytest.mark.parametrize("family", FAMILIES)
def test_vllm_decides_fresh_workloads_as_we_do(recorder, family):
    for workload in make_workloads(family, 1, seed=7):
        recorded = recorder.record(workload)
        assert first_difference(recorded["steps"], replay_case(workload)) is None


def test_the_recorder_reproduces_given_cases(recorder):
    for cases in cases_by_family("given").values():
        assert recorder.record(cases[0]) == cases[0]


def test_cases_are_recorded_by_command_and_replay_identical(vllm_python, tmp_path, capsys):
    out = tmp_path / "cases.jsonl.gz"
    options = ["--python", str(vllm_python), "--out", str(out), "--count", "2", "--seed", "3"]
    assert run_app(["conformance", "record", *options, "--family", "eagle"]) == 0
    assert "2 cases decided by vLLM" in capsys.readouterr().out
    assert run_app(["conformance", "replay", str(out)]) == 0


def test_a_python_without_vllm_is_one_clear_error(tmp_path, capsys):
    options = ["--python", sys.executable, "--out", str(tmp_path / "x.jsonl"), "--count", "1"]
    assert run_app(["conformance", "record", *options, "--family", "basic"]) == 2
    assert "pip install vllm==" in capsys.readouterr().err
    assert not (tmp_path / "x.jsonl").exists()


def test_a_python_that_is_not_there_is_one_clear_error():
    with pytest.raises(ConformanceError, match="cannot be started"):
        Recorder(Path("/nowhere/python"))


@pytest.mark.parametrize("family", FAMILIES)
def test_workloads_depend_on_family_seed_and_number_alone(family):
    first, second = make_workloads(family, 2, seed=5)
    assert list(make_workloads(family, 1, seed=5, first=1)) == [second]
    assert list(make_workloads(family, 1, seed=6)) != [first]
    assert first["name"] == f"{family}-5-0"


def test_an_unknown_family_is_named_with_the_known_ones():
    with pytest.raises(ConformanceError, match="unknown family 'basics'; known: basic, "):
        list(make_workloads("basics", 1, seed=0))


def test_a_differing_case_is_shrunk_to_what_makes_it_differ():
    """A stand-in for vLLM that admits one request too few: two requests show it."""

    def record(case):
        seats = case["config"].get("max_num_seqs", 128)
        config = {**case["config"], "max_num_seqs": max(seats - 1, 1)}
        return {**case, "steps": replay_case({**case, "config": config})}

    case = cases_by_family("given")["preempt"][0]
    small = shrink_case({k: case[k] for k in ("name", "config", "requests")}, record)
    assert replay_differs(small)
    assert len(small["requests"]) <= case["config"]["max_num_seqs"] < len(case["requests"])
    assert len(small["steps"]) < len(case["steps"]) / 4
    for index in range(len(small["requests"])):
        fewer = [*small["requests"][:index], *small["requests"][index + 1 :]]
        assert not fewer or not replay_differs(record({**small, "requests": fewer}))


def test_a_case_that_does_not_differ_is_left_alone():
    case = next(iter(read_cases(FILES["given"])))
    assert shrink_case(case, lambda c: {**c, "steps": replay_case(c)}) == case
