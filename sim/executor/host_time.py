"""The host's time of a step: what passes between two runs of the model in the executor's loop."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from calibration.bench.samples import mean_time_s
from sim.engine import HostOverhead
from sim.executor.clocks import Clock
from sim.executor.executor import ExecutedStep, Executor
from sim.executor.host_line import fit_host_overhead
from sim.executor.runner import ModelRunner
from sim.scheduler.config import CacheConfig, SchedulerConfig
from traces import Trace

_BATCHES = (1, 2, 4, 8, 16, 32, 64)
_PROMPT, _OUTPUTS = 32, 40


def measure_host_overhead(
    scheduler: SchedulerConfig,
    cache: CacheConfig,
    make_engine: Callable[[], tuple[ModelRunner, Clock]],
    rng: np.random.Generator,
) -> HostOverhead:
    """Return what a step costs beside the model: scheduling, inputs, outputs, bookkeeping.

    `make_engine` gives a model with an empty cache, and the clock to go by. Batches of growing size
    decode together; a straight line through the means, as profiles hold means: an engine waits for
    slow steps, too. The model runs as well: its weights drive the host's data out of the caches,
    which makes the host 2 to 4 times slower than it is alone.
    """
    times: list[tuple[int, float, int]] = []
    for size in _BATCHES:
        if size > scheduler.max_num_seqs or size * _blocks(cache) > cache.num_usable_blocks:
            break
        steps = _decode(size, scheduler, Executor(scheduler, cache, *make_engine()), rng)
        times.append((size, mean_time_s([step.host_s for step in steps]), len(steps)))
    return fit_host_overhead(times)


def _decode(
    size: int,
    scheduler: SchedulerConfig,
    executor: Executor,
    rng: np.random.Generator,
) -> list[ExecutedStep]:
    prompt = min(_PROMPT, scheduler.max_model_len // 2)
    outputs = min(_OUTPUTS, scheduler.max_model_len - prompt)
    trace = Trace.from_columns(np.zeros(size), np.full(size, prompt), np.full(size, outputs))
    run = executor.serve(trace, 2, rng)
    return [step for step in run.steps if not step.shape.chunks and step.num_requests == size]


def _blocks(cache: CacheConfig) -> int:
    return -(-(_PROMPT + _OUTPUTS) // cache.block_size)
