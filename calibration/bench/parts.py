"""Parts of a step, timed inside a whole step.

Timed alone, a part finds its code and data in the caches; in a step the weights of the other parts
have pushed them out. Measured on one core of an EPYC: decode steps of 1 to 4 requests took 7 to
11 % more than the sum of their parts alone.
"""

import time
from collections import defaultdict

from calibration.bench.attention import PagedKVCache
from calibration.bench.decoder import Decoder
from calibration.bench.samples import Sample
from calibration.bench.step_batch import StepBatch

DENSE, ATTENTION, LOGITS = "dense", "attention", "logits"


def time_parts(decoder: Decoder, batch: StepBatch, cache: PagedKVCache) -> dict[str, Sample]:
    """Run a whole step on the CPU and return what each part of it took in all layers.

    What counts is CPU time of the thread where there is one, else the time on the wall.
    """
    watch = _Watch()
    attention = decoder.attention
    rows = decoder.rows(batch)
    x = decoder.embed(rows)
    watch.lap(DENSE)
    plan = attention.plan(batch)
    watch.lap(ATTENTION)
    for number in range(len(decoder.layers)):
        query = decoder.before_attention(number, x, rows, cache)
        watch.lap(DENSE)
        attended = attention.run(number, query, cache, plan)
        watch.lap(ATTENTION)
        x = decoder.after_attention(number, x, attended)
        watch.lap(DENSE)
    hidden = decoder.last_norm(x)
    watch.lap(DENSE)
    decoder.sample(hidden, rows).tolist()
    watch.lap(LOGITS)
    counted_s = watch.cpu_s if decoder.device.num_threads == 1 else watch.wall_s
    return {
        part: Sample(counted_s[part], watch.wall_s[part], watch.cpu_s[part])
        for part in (DENSE, ATTENTION, LOGITS)
    }


class _Watch:
    """Adds each lap to the part that ran."""

    def __init__(self) -> None:
        self.wall_s: defaultdict[str, float] = defaultdict(float)
        self.cpu_s: defaultdict[str, float] = defaultdict(float)
        self._last = (time.perf_counter(), time.thread_time())

    def lap(self, part: str) -> None:
        """Say that a part has just run."""
        now = (time.perf_counter(), time.thread_time())
        self.wall_s[part] += now[0] - self._last[0]
        self.cpu_s[part] += now[1] - self._last[1]
        self._last = now
