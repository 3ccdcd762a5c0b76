"""The executor: the scheduler's decisions on a real cache give the tokens of the model alone."""

import time
from dataclasses import replace
from typing import cast

import numpy as np
import pytest

from calibration import CalibrationError, ModelSpec
from calibration.bench.points import Point
from calibration.bench.samples import Sample
from sim.errors import StudyError
from sim.executor.executor import ExecutedRun, Executor, PromptTokens
from sim.executor.host_line import fit_host_overhead
from sim.rng import Streams
from sim.scheduler.config import CacheConfig, SchedulerConfig
from traces import Trace

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install -e '.[bench]'")

from calibration.bench.decoder import Decoder  # noqa: E402
from calibration.bench.device import open_device  # noqa: E402
from calibration.bench.sections import Sections  # noqa: E402
from sim.executor.clocks import CpuClock, WallClock  # noqa: E402
from sim.executor.host_time import measure_host_overhead  # noqa: E402
from sim.executor.runner import DecoderRunner, ModelRunner, PacedRunner  # noqa: E402

TINY = ModelSpec(
    name="tiny",
    num_hidden_layers=2,
    hidden_size=32,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    intermediate_size=48,
    vocab_size=997,
    max_position_embeddings=256,
    dtype="float32",
)
SEATS = SchedulerConfig(max_num_seqs=4, max_num_batched_tokens=64, max_model_len=128)
LENGTHS = [(30, 20), (5, 33), (47, 9), (12, 12), (60, 30), (1, 4), (33, 25)]


@pytest.fixture(scope="module")
def decoder() -> Decoder:
    return Decoder(TINY, open_device("cpu"), block_size=4)


def trace(prompts: list[tuple[tuple[str, int], ...]] | None = None) -> Trace:
    prompt, output = zip(*LENGTHS, strict=True)
    return Trace.from_columns(
        np.zeros(len(LENGTHS)), np.array(prompt), np.array(output), prompts=prompts
    )


def serve(
    decoder: Decoder, served: Trace, num_blocks: int, **options: int
) -> tuple[ExecutedRun, Executor]:
    scheduler = SchedulerConfig(max_num_seqs=8, max_model_len=128, **options)  # type: ignore[arg-type]
    cache = CacheConfig(num_blocks, 4)
    executor = Executor(scheduler, cache, DecoderRunner(decoder, num_blocks, 4), CpuClock())
    return executor.serve(served, TINY.vocab_size, Streams(5).rng("prompts")), executor


def test_every_schedule_gives_the_same_tokens(decoder: Decoder) -> None:
    """One by one, in large batches, in small chunks, with preemptions: greedy tokens agree."""
    runs = {
        "at once": serve(decoder, trace(), 300)[0],
        "small chunks": serve(decoder, trace(), 300, max_num_batched_tokens=9)[0],
        "starved": serve(decoder, trace(), 26)[0],
    }
    preemptions = {
        name: sum(step.num_preempted for step in run.steps) for name, run in runs.items()
    }
    assert preemptions["starved"] > 0 and preemptions["at once"] == 0
    tokens = [run.tokens for run in runs.values()]
    assert tokens[0] == tokens[1] == tokens[2]
    for row, (prompt, output) in enumerate(LENGTHS):
        assert len(tokens[0][row]) == prompt + output


def test_shared_blocks_hold_what_was_computed_once(decoder: Decoder) -> None:
    """Requests with equal beginnings read one another's blocks and still get their own tokens."""
    prompts = [
        (("all", min(count, 28)), (f"own-{i}", max(count - 28, 0)))[: 1 + (count > 28)]
        for i, (count, _) in enumerate(LENGTHS)
    ]
    shared, _ = serve(decoder, trace(prompts), 300, max_num_batched_tokens=64)  # type: ignore[arg-type]
    hits = sum(request.num_cached_tokens for request in shared.requests)
    assert hits > 0
    alone = {}
    tokens = PromptTokens(TINY.vocab_size, Streams(5).rng("prompts"))
    for spec in trace(prompts):  # type: ignore[arg-type]
        own = tokens.of(spec).tolist()
        assert shared.tokens[spec.request_id][: len(own)] == own
    private = trace(prompts)  # type: ignore[arg-type]
    cache = CacheConfig(300, 4, enable_prefix_caching=False)
    scheduler = SchedulerConfig(max_num_seqs=8, max_num_batched_tokens=64, max_model_len=128)
    executor = Executor(scheduler, cache, DecoderRunner(decoder, 300, 4), CpuClock())
    alone = executor.serve(private, TINY.vocab_size, Streams(5).rng("prompts")).tokens
    assert shared.tokens == alone


def test_times_are_in_order_and_steps_do_not_overlap(decoder: Decoder) -> None:
    run, _ = serve(decoder, trace(), 300, max_num_batched_tokens=32)
    for request in run.requests:
        assert request.arrival_time <= request.first_scheduled_s
        assert request.first_scheduled_s < request.first_token_s <= request.last_token_s
    for before, after in zip(run.steps, run.steps[1:], strict=False):
        assert before.end_s <= after.start_s - after.host_s + 1e-9
        assert after.start_s < after.end_s


def test_the_cpu_clock_skips_waits_and_the_wall_clock_sleeps() -> None:
    cpu = CpuClock()
    cpu.wait_until(100.0)
    assert 100.0 <= cpu.now_s() < 101.0
    wall = WallClock()
    wall.wait_until(0.02)
    assert wall.now_s() >= 0.02


def test_a_clock_at_half_the_pace_counts_half_the_work() -> None:
    clock = CpuClock()

    def work_s() -> tuple[float, float]:
        """The work's time by the clock, and its CPU time."""
        at_s, cpu_s = clock.now_s(), time.thread_time()
        while time.thread_time() - cpu_s < 0.02:
            pass
        return clock.now_s() - at_s, time.thread_time() - cpu_s

    clocked_s, cpu_s = work_s()
    assert clocked_s == pytest.approx(cpu_s, rel=0.01)
    clock.set_pace(2.0)
    clocked_s, cpu_s = work_s()
    assert clocked_s == pytest.approx(cpu_s / 2, rel=0.01)
    before_s = clock.now_s()
    _, cpu_s = work_s()
    clock.leave_out(cpu_s)
    assert clock.now_s() == pytest.approx(before_s, abs=1e-3)
    clock.wait_until(before_s + 5.0)
    assert clock.now_s() == pytest.approx(before_s + 5.0, abs=1e-3)


def test_serving_begins_at_the_start_of_the_clock(decoder: Decoder) -> None:
    """Neither caches nor prompts, which are made before, delay the first request."""
    clock = WallClock()
    time.sleep(0.3)
    executor = Executor(SEATS, CacheConfig(40, 4), DecoderRunner(decoder, 40, 4), clock)
    run = executor.serve(Trace.from_columns([0.0], [5], [2]), 64, Streams(0).rng("prompts"))
    assert run.steps[0].start_s < 0.3


@pytest.mark.parametrize("max_num_seqs", [1, 2, 4])
def test_the_host_takes_time_for_any_number_of_seats(decoder: Decoder, max_num_seqs: int) -> None:
    scheduler = replace(SEATS, max_num_seqs=max_num_seqs)

    def make_engine() -> tuple[ModelRunner, WallClock]:
        return DecoderRunner(decoder, 40, 4), WallClock()

    rng = Streams(0).rng("host")
    host = measure_host_overhead(scheduler, CacheConfig(40, 4), make_engine, rng)
    assert 1e-6 < host.step_s(max_num_seqs) < 0.1
    with pytest.raises(CalibrationError, match="too few to time the host"):
        measure_host_overhead(scheduler, CacheConfig(2, 4), make_engine, rng)


def test_the_pace_is_a_mean_as_the_profile_s_times_are() -> None:
    """Two rounds in five at 0.8 of the profile's time and three at 1.0: a pace of 0.92."""

    class Machine:
        def __init__(self) -> None:
            self._paces = iter((1.0, 0.8, 1.0, 0.8, 1.0))

        def measure(self, point: Point) -> Sample:
            time_s = 2e-3 * next(self._paces)
            return Sample(time_s, time_s, time_s)

    points = {Point("dense", 4): 2e-3}
    paced = PacedRunner(cast(ModelRunner, None), CpuClock(), cast(Sections, Machine()), points)
    assert paced.paces == [pytest.approx(0.92)]


def test_host_time_is_a_line_over_requests() -> None:
    host = fit_host_overhead([(1, 110e-6, 9), (2, 120e-6, 9), (4, 140e-6, 2), (8, 180e-6, 5)])
    assert host.per_step_s == pytest.approx(100e-6)
    assert host.per_request_s == pytest.approx(10e-6)


def test_noisy_means_leave_the_line_where_it_is() -> None:
    """Lines through means of few steps that scatter by 30 % lie about the true line, not below."""
    rng, sizes = Streams(5).rng("host"), (1, 2, 4, 8, 16, 32)
    lines = [
        fit_host_overhead(
            [(n, (100e-6 + 10e-6 * n) * float(np.exp(0.3 * z - 0.045)), 5) for n, z in drawn]
        ).step_s(16)
        for drawn in (
            list(zip(sizes, rng.standard_normal(len(sizes)), strict=True)) for _ in range(400)
        )
    ]
    assert np.mean(lines) == pytest.approx(260e-6, rel=0.02)


def test_what_it_does_not_run_is_refused(decoder: Decoder) -> None:
    with pytest.raises(StudyError, match="async_scheduling"):
        Executor(
            SchedulerConfig(async_scheduling=True),
            CacheConfig(10, 4),
            DecoderRunner(decoder, 10, 4),
            CpuClock(),
        )
