"""The shipped sample is what its README says, to the byte."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import traces
from traces.samples import make as script

ROOT = Path(traces.__file__).resolve().parents[1]
SHIPPED = ROOT / "traces/samples/chat.jsonl"


def test_regeneration_gives_the_shipped_bytes(tmp_path: Path) -> None:
    script.main(tmp_path / "chat.jsonl")
    assert (tmp_path / "chat.jsonl").read_bytes() == SHIPPED.read_bytes(), (
        f"numpy {np.__version__} draws otherwise than the numpy that made the sample, "
        "or the generator changed"
    )


@pytest.mark.parametrize("hash_seed", ["0", "4711"])
def test_written_command_works_under_any_hash_seed(tmp_path: Path, hash_seed: str) -> None:
    target = tmp_path / "chat.jsonl"
    command = [sys.executable, "-m", "traces.samples.make", str(target)]
    subprocess.run(command, check=True, cwd=ROOT, env={"PYTHONHASHSEED": hash_seed})
    assert target.read_bytes() == SHIPPED.read_bytes()


def test_sample_is_what_its_readme_says() -> None:
    trace = traces.sample()
    assert len(trace) == script.NUM_REQUESTS == trace.source.num_rows_read
    assert (trace.source.dropped, trace.source.warnings) == ({}, ())
    assert SHIPPED.stat().st_size < 300_000
    assert (len(trace) - 1) / trace.duration_s == pytest.approx(6.5, rel=0.1)
    gaps = np.diff(trace.arrival_s)
    assert gaps.std() / gaps.mean() == pytest.approx(1.5, rel=0.1)
    assert trace.prompts is not None
    assert sum(map(bool, trace.prompts)) / len(trace) == pytest.approx(0.4, abs=0.04)
    assert set(trace.priority.tolist()) == {-1, 0, 1}
    readme = (SHIPPED.parent / "README.md").read_text()
    assert str(script.SEED) in readme
    assert "Generated, not recorded" in readme


def test_name_of_the_sample_holds_no_place_on_this_machine() -> None:
    source = traces.sample().source
    assert source.name == "sample:chat.jsonl"
    assert str(ROOT) not in repr(source)
