"""`engine.core` chooses: compiled where it can be, or as asked for, or an error."""

from __future__ import annotations

from typing import Any

import pytest

from sim._core import native
from sim.config import resolve_study
from sim.config.core_options import resolve_core
from sim.config.schema import EngineSection
from sim.errors import StudyError

is_built = pytest.mark.skipif(native is None, reason="the compiled core is not built here")
UNCOVERED: list[dict[str, Any]] = [
    {"leap": False},
    {"scheduler": "vllm"},
    {"scheduling_policy": "sjf"},
    {"explain": True},
    {"max_loras": 2},
]


@is_built
def test_auto_takes_the_compiled_core() -> None:
    assert resolve_core(EngineSection()) == "compiled"
    assert resolve_core(EngineSection(core="python")) == "python"


@pytest.mark.parametrize("options", UNCOVERED, ids=lambda o: next(iter(o)))
def test_what_it_does_not_cover(options: dict[str, Any]) -> None:
    assert resolve_core(EngineSection(**options)) == "python"
    with pytest.raises(StudyError, match=r"engine.core: compiled can't run this study: .+"):
        resolve_core(EngineSection(core="compiled", **options))


def test_without_a_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sim.config.core_options.native", None)
    assert resolve_core(EngineSection()) == "python"
    with pytest.raises(StudyError, match="not built"):
        resolve_core(EngineSection(core="compiled"))


@pytest.mark.parametrize("core", ["python", pytest.param("compiled", marks=is_built)])
def test_the_config_says_which_core_ran(core: str) -> None:
    study = resolve_study(
        {
            "trace": {"sample": True},
            "model": "llama-3.1-8b",
            "hardware": "h100-sxm-80gb",
            "engine": {"core": core},
        },
        "test",
    )
    assert study.config["provenance"]["versions"]["core"] == core
