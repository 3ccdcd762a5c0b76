"""The host's time of a step: what passes between two runs of the model in the executor's loop."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from itertools import chain

import numpy as np

from calibration import CalibrationError
from sim.engine import HostOverhead
from sim.executor.clocks import Clock
from sim.executor.executor import Executor
from sim.executor.host_line import fit_host_overhead
from sim.executor.runner import ModelRunner
from sim.scheduler.config import CacheConfig, SchedulerConfig
from traces import Trace

_BURSTS = (1, 2, 4, 8, 16, 32)
_WARM_UP = 4
_CLIPPED_AT = 5.0  # times the median: on the wall an interruption is a hundred times the host's
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
    decoded; a straight line goes through the mean times over requests. Means: an engine waits for
    slow steps, too. The model runs as well: its weights drive the host's data out of the caches,
    which makes the host 2 to 4 times slower than it is alone.

    Raises:
        CalibrationError: the cache is too small for any request.
    """

    def host_times(size: int) -> list[tuple[int, float]]:
        room = cache.num_usable_blocks // size * cache.block_size
        if size > scheduler.max_num_seqs or room < 2 * _PROMPT_FROM:
            return []
        burst = _burst(size, min(room, scheduler.max_model_len), rng)
        run = Executor(scheduler, cache, *make_engine()).serve(burst, 2, rng)
        return [(step.num_requests, step.host_s) for step in run.steps if not step.is_after_idle]

    host_times(min(_WARM_UP, scheduler.max_num_seqs))
    times: defaultdict[int, list[float]] = defaultdict(list)
    for num_requests, host_s in chain.from_iterable(map(host_times, _BURSTS)):
        times[num_requests].append(host_s)
    if not times:
        raise CalibrationError(
            f"{cache.num_gpu_blocks} KV blocks of {cache.block_size} are too few to time the host"
        )
    return fit_host_overhead([(size, _mean(own), len(own)) for size, own in sorted(times.items())])


def _mean(times_s: list[float]) -> float:
    times = np.array(times_s)
    return float(np.minimum(times, _CLIPPED_AT * np.median(times)).mean())


def _burst(size: int, longest: int, rng: np.random.Generator) -> Trace:
    """Requests none of which is longer than that, prompt and output together."""
    outputs = min(_OUTPUTS, longest // 2)
    prompts = np.exp(rng.uniform(np.log(_PROMPT_FROM), np.log(longest - outputs), size))
    arrival_s = np.sort(rng.integers(0, 2, size) * rng.uniform(0.0, _WITHIN_S, size))
    return Trace.from_columns(
        arrival_s - arrival_s[0], prompts.astype(np.int64), np.full(size, outputs)
    )
