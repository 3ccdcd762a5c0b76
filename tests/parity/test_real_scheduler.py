"""`engine.scheduler: vllm`: the real class in our loop writes the same files as ours.

Needs HEADWAY_VLLM_PYTHON: a Python with vLLM, Headway and Headway's dependencies.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sim.config import resolve_study
from sim.simulation import simulate
from sim.vllm_adapter import VllmAdapterError
from tests.parity.real_scheduler import draw_study

SCRIPT = Path(__file__).with_name("real_scheduler.py")


def test_fifty_studies_write_the_same_files_with_the_real_scheduler():
    python = os.environ.get("HEADWAY_VLLM_PYTHON")
    if not python:
        pytest.skip("HEADWAY_VLLM_PYTHON does not name a Python with vLLM")
    probe = "import simpy, pandas, pyarrow, importlib.metadata as m; m.version('headway')"
    if subprocess.run([python, "-c", probe], capture_output=True, check=False).returncode:
        pytest.skip(f"{python} has vLLM but not Headway and its dependencies")
    done = subprocess.run(
        [python, str(SCRIPT), "50", "2"], capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines()[-1:] == ["50 of 50 identical"], done.stdout + done.stderr


@pytest.mark.skipif("vllm" in sys.modules, reason="vLLM is installed here")
@pytest.mark.parametrize("scheduler", ["vllm", "my_fork:Scheduler"])
def test_without_the_package_one_sentence_says_what_to_install(scheduler):
    study = draw_study(0, 0)
    resolved = resolve_study(
        {**study, "engine": {**study["engine"], "scheduler": scheduler}}, "study"
    )
    with pytest.raises(VllmAdapterError, match=r"pip install vllm==0\.29\.0") as refused:
        simulate(resolved)
    assert "\n" not in str(refused.value)
