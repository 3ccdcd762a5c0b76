"""The host's time of a step: what passes between two runs of the model in the executor's loop."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import numpy as np

from sim.engine import HostOverhead
from sim.executor.clocks import Clock
from sim.executor.executor import Executor
from sim.executor.host_line import fit_host_overhead
from sim.executor.runner import ModelRunner
from sim.scheduler.config import CacheConfig, SchedulerConfig
from traces import Trace

_BURSTS = (4, 1, 2, 4, 8, 16, 32, 64)  # requests of each; the first warms up
_PROMPT_FROM, _OUTPUTS = 4, 40
_WITHIN_S = 0.5


def measure_host_overhead(
    scheduler: SchedulerConfig,
    cache: CacheConfig,
    make_engine: Callable[[], tuple[ModelRunner, Clock]],
    rng: np.random.Generator,
) -> HostOverhead:
    """Return what a step costs beside the model: scheduling, inputs, outputs, bookkeeping.

    `make_engine` gives a model with an empty cache, and the clock to go by. It serves bursts of
    more and more requests with prompts of all lengths, half of which come while others are
    decoded; a straight line goes through the mean times over requests. Means of all: an engine
    waits for slow steps, too. The model runs as well: its weights drive the host's data out of the
    caches, which makes the host 2 to 4 times slower than it is alone.
    """
    times: defaultdict[int, list[float]] = defaultdict(list)
    for number, size in enumerate(_BURSTS):
        room = cache.num_usable_blocks // size * cache.block_size
        if size > scheduler.max_num_seqs or room < 2 * _PROMPT_FROM:
            continue
        burst = _burst(size, min(room, scheduler.max_model_len), rng)
        run = Executor(scheduler, cache, *make_engine()).serve(burst, 2, rng)
        for step in run.steps:
            if number and not step.is_after_idle:
                times[step.num_requests].append(step.host_s)
    return fit_host_overhead(
        [(size, float(np.mean(own)), len(own)) for size, own in sorted(times.items())]
    )


def _burst(size: int, longest: int, rng: np.random.Generator) -> Trace:
    """Requests none of which is longer than that, prompt and output together."""
    outputs = min(_OUTPUTS, longest // 2)
    prompts = np.exp(rng.uniform(np.log(_PROMPT_FROM), np.log(longest - outputs), size))
    arrival_s = np.sort(rng.integers(0, 2, size) * rng.uniform(0.0, _WITHIN_S, size))
    return Trace.from_columns(
        arrival_s - arrival_s[0], prompts.astype(np.int64), np.full(size, outputs)
    )
