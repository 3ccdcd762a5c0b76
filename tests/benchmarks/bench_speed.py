"""How fast a simulation is, as ratios within one run: these hold on other and on noisy machines.

    .venv/bin/pytest tests/benchmarks/bench_speed.py --benchmark-enable

One command prints two tables: pytest-benchmark's own, of seconds, and below it the figures that
follow from them. Not collected by default; needs the compiled core for those cases that name it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from time import process_time
from typing import Any

import pytest
import simpy

from sim import result as run_folder
from sim._core import native
from sim.config import ResolvedStudy, resolve_study
from sim.folder_sink import FolderSink
from sim.simulation import simulate
from tests.benchmarks.workloads import (
    CORES,
    RUNNING,
    azure_values,
    crowd_with_visitors,
    steady_decode,
)

pytestmark = pytest.mark.benchmark(timer=process_time)

ROUNDS = 3
NUM_STEPS = 1_000_000
Report = Callable[[str, str], None]


@pytest.fixture(scope="session")
def events_per_s() -> float:
    """Bare events a CPU second of one SimPy process that waits again and again."""

    def once(number: int = 300_000) -> float:
        env = simpy.Environment()

        def process() -> Iterator[Any]:
            for _ in range(number):
                yield env.timeout(1.0)

        env.process(process())
        start = process_time()
        env.run()
        return number / (process_time() - start)

    return max(once() for _ in range(5))


def seconds(benchmark: Any, call: Callable[[], Any], rounds: int = ROUNDS) -> float:
    """CPU seconds of a call: the least of some, the first not counted."""
    benchmark.pedantic(call, rounds=rounds, warmup_rounds=1)
    return float(benchmark.stats.stats.min)


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_cost_of_a_steady_decode_step(
    benchmark: Any, figures: Report, core: str, is_async: bool
) -> None:
    """The same steps for 16 and for 4,096 running requests, at a cost that must not grow."""

    def us_a_step(num_running: int) -> float:
        lengths = (1_000, 1_000 + NUM_STEPS)  # the difference is all steady decode
        studies = [steady_decode(num_running, n, core, is_async=is_async) for n in lengths]
        least = [min(_timed(lambda s=s: simulate(s)) for _ in range(ROUNDS)) for s in studies]
        return 1e6 * (least[1] - least[0]) / NUM_STEPS

    costs = benchmark.pedantic(lambda: [us_a_step(n) for n in RUNNING], rounds=1)
    listed = " / ".join(f"{cost:.2f}" for cost in costs)
    name = f"us a steady decode step, {core}, {'async' if is_async else 'sync'}, {RUNNING}"
    figures(name, f"{listed}  (last over first {costs[-1] / costs[0]:.2f}x)")


@pytest.mark.parametrize("core", CORES)
def test_cost_of_a_visitor(benchmark: Any, figures: Report, core: str) -> None:
    """A request that comes and goes beside a crowd that decodes: its cost is its own."""

    def us_a_visitor(num_running: int) -> float:
        few, many = (crowd_with_visitors(num_running, n, core) for n in (100, 1_100))
        least = [min(_timed(lambda s=s: simulate(s)) for _ in range(3)) for s in (few, many)]
        return 1e6 * (least[1] - least[0]) / 1_000

    costs = benchmark.pedantic(lambda: [us_a_visitor(n) for n in RUNNING], rounds=1)
    listed = " / ".join(f"{cost:.0f}" for cost in costs)
    figures(f"us a passing request, {core}, beside {RUNNING}", listed)


@pytest.mark.skipif(native is None, reason="the compiled core is not built here")
@pytest.mark.parametrize("replicas", [1, 4])
@pytest.mark.parametrize("arrivals", ["Poisson", "recorded"])
@pytest.mark.parametrize("caching", [False, True], ids=["no prefix caching", "prefix caching"])
def test_figure_of_merit(
    benchmark: Any,
    figures: Report,
    events_per_s: float,
    tmp_path: Path,
    replicas: int,
    arrivals: str,
    caching: bool,
) -> None:
    """Requests a CPU second over bare SimPy events a CPU second: of the loop, and of everything."""
    values = azure_values(replicas, arrivals, caching)
    study = resolve_study(values, "benchmark")
    loop_s = min(_timed(lambda: simulate(study)) for _ in range(ROUNDS))
    whole_s = seconds(benchmark, lambda: _whole(resolve_study(values, "benchmark"), tmp_path))
    loop, whole = (len(study.trace) / s / events_per_s for s in (loop_s, whole_s))
    name = f"merit, {replicas} replicas, {arrivals}, {'with' if caching else 'no'} prefix caching"
    figures(name, f"loop {loop:.3f}, whole {whole:.3f} ({len(study.trace) / whole_s:,.0f} req/s)")


@pytest.mark.parametrize("core", CORES)
def test_records_and_metrics(benchmark: Any, figures: Report, tmp_path: Path, core: str) -> None:
    """What the run folder and all metrics add to the loop."""
    study = resolve_study(azure_values(1, "Poisson", caching=True), "benchmark")
    study = replace(study, engine=replace(study.engine, core=core))
    loop_s = min(_timed(lambda: simulate(study)) for _ in range(ROUNDS))
    whole_s = seconds(benchmark, lambda: _whole(study, tmp_path))
    figures(f"records, metrics and run folder over the loop, {core}", f"{whole_s / loop_s - 1:.0%}")


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--no-plots"]], ids=["help", "run"])
def test_cold_process(
    benchmark: Any, figures: Report, tmp_path: Path, arguments: list[str]
) -> None:
    """CPU seconds of a command from a cold process: `run` on the Azure conversation trace."""
    if arguments[0] == "run":
        trace = azure_values(1, "recorded", caching=False)["trace"]["path"]
        arguments = [*arguments, "--trace", trace]

    def once() -> float:
        before = os.times()
        command = [sys.executable, "-m", "sim.cli", *arguments]
        subprocess.run(command, cwd=tmp_path, capture_output=True, check=True)
        after = os.times()
        spent = (after.children_user - before.children_user) + (
            after.children_system - before.children_system
        )
        return float(spent)

    spent_s = benchmark.pedantic(lambda: min(once() for _ in range(3)), rounds=1)
    figures(f"CPU seconds of a cold `headway {arguments[0]}`", f"{spent_s:.2f}")


@pytest.mark.skipif(native is None, reason="the compiled core is not built here")
def test_a_million_requests(benchmark: Any, figures: Report, tmp_path: Path) -> None:
    """A whole `headway run` of made-up requests: its time and the most memory that it took.

    `HEADWAY_BENCH_REQUESTS` sets another number.
    """
    number = int(os.environ.get("HEADWAY_BENCH_REQUESTS", "1000000"))
    # Not getrusage's peak: that counts the process which started this one, too.
    code = (
        "import re, sys, time; from pathlib import Path; from sim.cli.app import main\n"
        "try: main()\n"
        "finally:\n"
        "    status = Path('/proc/self/status').read_text()\n"
        "    peak = re.search(r'VmHWM:\\s+(\\d+)', status)[1]\n"
        "    print(peak, time.process_time(), file=sys.stderr)\n"
    )
    study = tmp_path / "million.yaml"
    study.write_text(
        "name: million\nmodel: llama-3.1-8b\nhardware: h100-sxm\ntrace:\n  generator:\n"
        f"    num_requests: {number}\n    rate_per_s: 6.45\n"
        "    prompt_tokens: {median: 1000, sigma: 0.9, highest: 8000}\n"
        "    output_tokens: {median: 130, sigma: 0.8, highest: 1000}\n"
    )
    command = [sys.executable, "-c", code, "run", str(study), "--out", str(tmp_path / "out")]

    def once() -> list[str]:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return done.stderr.splitlines()[-1].split()

    peak_kb, spent_s = benchmark.pedantic(once, rounds=1)
    figures(
        f"{number:,} requests, plots on",
        f"{float(spent_s):.0f} CPU s, {number / float(spent_s):,.0f} req/s, "
        f"peak {int(peak_kb) / 1e6:.2f} GB",
    )


def _whole(study: ResolvedStudy, folder: Path) -> None:
    """A run with all metrics and its folder, plots off."""
    with run_folder.staged_folder(folder / "run", overwrite=True) as stage:
        with FolderSink(stage) as sink:
            result = simulate(study, sink=sink)
        run_folder.write_about(result, stage, plots=False)


def _timed(call: Callable[[], Any]) -> float:
    start = process_time()
    call()
    return process_time() - start
