"""`cost_model: {kind: auto}`: the shipped profile of exactly this, else the roofline and a word."""

from typing import Any

import pytest

from sim.cli.app import run_app
from sim.config import ResolvedStudy, resolve_study

STUDY: dict[str, Any] = {
    "name": "auto",
    "trace": {"sample": True, "limit": 5},
    "model": "llama-3.1-8b",
    "hardware": "h100",
}


def resolved(**changes: Any) -> ResolvedStudy:
    return resolve_study({**STUDY, **changes}, "study.yaml")


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({}, "profile"),
        ({"cost_model": {"kind": "auto"}}, "profile"),
        ({"hardware": "b200", "model": "llama-3.1-70b-nvfp4"}, "profile"),
        ({"engine": {"kv_cache_dtype": "fp8"}}, "profile"),
        ({"model": "gpt-oss-120b", "hardware": "h200"}, "profile"),
        ({"hardware": "l4"}, "roofline"),
        ({"model": "llama-3.1-8b-awq"}, "roofline"),
        ({"cost_model": {"kind": "roofline"}}, "roofline"),
    ],
)
def test_a_profile_of_exactly_this_is_preferred(changes: dict[str, Any], kind: str) -> None:
    study = resolved(**changes)
    assert study.cost_model.provenance.kind == kind
    assert study.cost_model.provenance.calibrated == (kind == "profile")


def test_the_saved_study_says_which_profile_it_was() -> None:
    cost = resolved().config["provenance"]["cost_model"]
    assert cost["calibrated"]
    assert "measured on h100-sxm-80gb" in cost["label"]
    assert cost["details"]["path"].startswith("shipped profile h100-sxm-80gb/llama-3.1-8b.bfloat16")
    assert len(cost["details"]["sha256"]) == 64


def test_the_roofline_in_its_place_is_a_warning() -> None:
    (warning,) = [w for w in resolved(hardware="l4").warnings if "roofline" in w]
    assert "no measured profile of llama-3.1-8b in bfloat16 on l4" in warning
    asked = resolved(cost_model={"kind": "roofline"}).warnings
    assert not [w for w in asked if "roofline" in w]


def test_intervals_of_a_run(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["run", "--no-plots", "--intervals", "--set", "trace.limit=40"]
    profile = ["--set", "cost_model.kind=auto", "--out", str(tmp_path / "run")]
    assert run_app([*arguments, *profile]) == 0
    said = capsys.readouterr().out
    assert "Intervals: 90% of 20 runs" in said
    assert (tmp_path / "run" / "intervals.json").is_file()
    assert run_app(["check", str(tmp_path / "run")]) == 0
    capsys.readouterr()
    roofline = ["--set", "cost_model.kind=roofline", "--out", str(tmp_path / "other")]
    assert run_app([*arguments, *roofline]) == 2
    assert "this study's cost model is roofline" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()
