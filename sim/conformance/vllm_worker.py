"""Run by a Python that has vLLM: decides the workloads that come in, one a line.

`record.Recorder` starts this file by its path, in an environment that knows nothing of Headway:
of Headway it imports only what needs the standard library alone. Its first line out is the
version; then, for each line in, the case with its steps, or with `error`.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any, TextIO

_MAX_IDLE_ITERATIONS = 3000


def main() -> None:
    """Answer until the input ends. `sys.argv[1]` is the scheduler: vllm or module:Class."""
    answers = _take_stdout()
    sys.path[0] = str(Path.cwd())  # not this file's folder, which is no place to import from
    _find_sim()
    from sim.vllm_adapter import VllmAdapterError, VllmSchedulerFactory  # noqa: PLC0415

    try:
        factory = VllmSchedulerFactory(sys.argv[1])
    except VllmAdapterError as error:
        _answer(answers, {"error": str(error)})
        return
    _answer(answers, {"vllm": factory.version, "python": sys.version.split()[0]})
    for line in sys.stdin:
        _answer(answers, _record(json.loads(line), factory))


def _record(case: dict[str, Any], factory: Any) -> dict[str, Any]:
    from sim.conformance.replay import replay_case  # noqa: PLC0415

    try:
        steps = replay_case(case, factory, max_idle_iterations=_MAX_IDLE_ITERATIONS)
    except Exception as error:  # whatever vLLM raises is the answer to this case, not the end
        return {"name": case.get("name"), "error": f"{type(error).__name__}: {error}"}
    return {**case, "steps": steps}


def _take_stdout() -> TextIO:
    """Keep stdout for answers; what vLLM prints goes to stderr."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def _answer(answers: TextIO, answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


def _find_sim() -> None:
    """Make the package `sim` importable from where this file lies, and nothing else from there."""
    root = Path(__file__).resolve().parents[1]
    spec = importlib.util.spec_from_file_location(
        "sim", root / "__init__.py", submodule_search_locations=[str(root)]
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"no package at {root}")
    module = importlib.util.module_from_spec(spec)
    sys.modules["sim"] = module
    spec.loader.exec_module(module)


if __name__ == "__main__":
    main()
