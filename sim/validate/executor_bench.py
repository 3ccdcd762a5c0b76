"""Runs loads on the executor of this machine and sets simulations beside them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from calibration import ModelSpec, Profile
from calibration.bench.attention import make_cache
from calibration.bench.decoder import Decoder
from calibration.bench.device import BenchDevice, first_line, open_device
from calibration.bench.pace import pace_points
from calibration.bench.sections import Sections
from calibration.bench.timing import time_cpu
from calibration.errors import CalibrationError
from sim.engine import HostOverhead
from sim.executor.clocks import Clock, CpuClock, WallClock
from sim.executor.executor import ExecutedRun, Executor
from sim.executor.host_time import measure_host_overhead
from sim.executor.runner import DecoderRunner, ModelRunner, PacedRunner
from sim.scheduler.config import CacheConfig, SchedulerConfig
from sim.validate.executor_study import LoadComparison, compare, make_loads
from sim.validate.load_study import NUM_SIMULATED, Load, Machine
from sim.wording import number_of

_PACE_TOKENS = 512  # most tokens of a point at which the pace is taken
_PACE_CACHE_BYTES = 1 << 29
_CLOCKS: dict[str, type[Clock]] = {"wall": WallClock, "cpu": CpuClock}


class ExecutorBench:
    """The decoder on a device, eager, and the profile of that device.

    `decoder`: the one that was measured, where it is still there; it takes no memory twice.

    Raises:
        CalibrationError: the profile is of another device, model or number of threads.
    """

    def __init__(
        self,
        model: ModelSpec,
        profile: Profile,
        *,
        device: str,
        num_threads: int,
        block_size: int,
        clock: str,
        rng: Callable[[str], np.random.Generator],
        decoder: Decoder | None = None,
    ) -> None:
        opened = open_device(device, num_threads)
        measured = profile.provenance
        pairs = (
            ("device", measured.device, opened.name),
            ("model", measured.model, model.name),
            ("execution", measured.execution, opened.execution("eager")),
        )
        for what, in_profile, here in pairs:
            if in_profile != here:
                raise CalibrationError(
                    f"{profile.path}: measured with {what} {in_profile}, but here it is {here};"
                    " measure this machine with headway calibrate"
                )
        self._profile, self._rng = profile, rng
        self._block_size = block_size
        self._clock = _CLOCKS[clock]
        self._decoder = decoder or _decoder(model, opened, block_size, measured.kernel_backend)
        self._pace_sections: Sections | None = None

    def measure_host(self, scheduler: SchedulerConfig, cache: CacheConfig) -> Machine:
        """Time the host's part of a step; returns all that a simulation needs of this machine."""
        return Machine(self._decoder.model, self._profile, self.host_overhead(scheduler, cache))

    def host_overhead(self, scheduler: SchedulerConfig, cache: CacheConfig) -> HostOverhead:
        """Time the host's part of a step."""

        def make_engine() -> tuple[ModelRunner, Clock]:
            if self._clock is CpuClock:
                return self._paced(cache)
            return self._runner(cache), WallClock()

        return measure_host_overhead(scheduler, cache, make_engine, self._rng("host"))

    def loads(self, machine: Machine, scheduler: SchedulerConfig, num_requests: int) -> list[Load]:
        """Three loads from light to KV-starved."""
        return make_loads(machine, scheduler, self._block_size, num_requests, self._rng("loads"))

    def compare(self, machine: Machine, load: Load, repeats: int) -> LoadComparison:
        """Run a load `repeats` times and simulate it once."""
        return compare(machine, load, [self.run(load) for _ in range(repeats)])

    def compare_at_pace(
        self, machine: Machine, load: Load, repeats: int
    ) -> tuple[LoadComparison, list[float]]:
        """The same on a machine that others share, on a clock that follows the machine's pace.

        Returns the paces, too: how much longer than in the profile work took, time after time.
        """
        paces: list[float] = []
        runs = []
        for _ in range(repeats):
            runner, clock = self._paced(load.cache)
            runs.append(self._serve(load, runner, clock))
            paces += runner.paces
        return compare(machine, load, runs), paces

    def _paced(self, cache: CacheConfig) -> tuple[PacedRunner, CpuClock]:
        clock = CpuClock()
        points = pace_points(self._profile)
        return PacedRunner(self._runner(cache), clock, self._sections(), points), clock

    def run(self, load: Load) -> ExecutedRun:
        """Serve a load on the executor, from an empty cache."""
        return self._serve(load, self._runner(load.cache), self._clock())

    def _serve(self, load: Load, runner: ModelRunner, clock: Clock) -> ExecutedRun:
        executor = Executor(load.scheduler, load.cache, runner, clock)
        return executor.serve(load.trace, self._decoder.model.vocab_size, self._rng("prompts"))

    def _sections(self) -> Sections:
        """Microbenchmarks on this decoder, with a cache of their own: of half a GiB, if one is."""
        if self._pace_sections is None:
            decoder, model = self._decoder, self._decoder.model
            bytes_per_token = 2 * model.num_hidden_layers * model.kv_size * model.dtype_bytes
            num_tokens = max(_PACE_CACHE_BYTES // bytes_per_token, 4 * _PACE_TOKENS)
            num_blocks = num_tokens // self._block_size + 1
            cache = make_cache(model, num_blocks, self._block_size, decoder.device, decoder.dtype)
            self._pace_sections = Sections(decoder, cache, time_cpu, self._rng("blocks"))
        return self._pace_sections

    def _runner(self, cache: CacheConfig) -> DecoderRunner:
        return DecoderRunner(self._decoder, cache.num_gpu_blocks, cache.block_size)


def _decoder(model: ModelSpec, device: BenchDevice, block_size: int, kernel: str) -> Decoder:
    """The decoder with the kernel of the profile: another one has other times."""
    try:
        return Decoder(model, device, block_size, kernel=kernel)
    except RuntimeError as error:
        raise CalibrationError(f"{device.name} failed: {first_line(error)}") from error


def comparison_lines(comparison: LoadComparison, repeats: int) -> list[str]:
    """The table of one load."""
    steps, load = comparison.steps, comparison.load
    executed, simulated = comparison.num_preemptions
    lines = [
        "",
        f"{load.name}: {len(load.trace)} requests, {load.cache.num_gpu_blocks} KV blocks of"
        f" {load.cache.block_size}, {number_of(repeats, 'run')}; preemptions {executed:.1f}"
        f" executed, {simulated:.1f} simulated",
        f"steps: {len(steps.measured_s)}, MAPE {steps.mape:.1%}, bias {steps.bias:+.1%}, total"
        f" time {steps.total_error:+.1%}; host time {comparison.host_error:+.1%}",
        f"steps scatter by {steps.scatter}: so do those of {NUM_SIMULATED} simulations",
        f"{'':12}{'executed':>12}{'simulated':>12}{'error':>9}{'run to run':>12}{'simulated':>12}",
    ]
    return lines + _statistic_lines(comparison)


def _statistic_lines(comparison: LoadComparison) -> list[str]:
    return [
        f"{item.metric + ' ' + item.statistic:12}{item.measured_s * 1e3:>9.1f} ms"
        f"{item.predicted_s * 1e3:>9.1f} ms{item.error:>+9.1%}"
        f"{'-' if np.isnan(item.noise) else format(item.noise, '.1%'):>12}"
        f"{item.predicted_noise:>12.1%}"
        for item in comparison.statistics
    ]
