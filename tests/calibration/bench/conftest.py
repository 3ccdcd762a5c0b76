"""What the tests of measuring share."""

import time

import pytest


@pytest.fixture
def budget_in_cpu_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make budgets count CPU time, so that they last as long on a busy machine."""
    bench_run = pytest.importorskip("calibration.bench.bench_run", reason="needs PyTorch")
    for call in (bench_run.run_calibration, bench_run.BenchRun.__init__):
        monkeypatch.setitem(call.__kwdefaults__, "clock", time.thread_time)
