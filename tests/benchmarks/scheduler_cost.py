"""Cost of schedule() + update_from_output(), ours and vLLM's own, in one run.

    PYTHON_WITH_VLLM tests/benchmarks/scheduler_cost.py [REPEATS]

Every running request decodes; a step schedules one token for each. CPU microseconds a step, the
median of many, schedulers taking turns. Where vLLM cannot be imported only ours are shown.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import thread_time_ns

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from sim.scheduler.async_scheduler import create_scheduler
from sim.scheduler.config import CacheConfig, SchedulerConfig
from sim.scheduler.kv_ledger import KVLedger
from sim.scheduler.leap_scheduler import create_leap_scheduler
from sim.scheduler.request import Request
from sim.scheduler.scheduler import Scheduler
from sim.vllm_adapter import VllmAdapterError, VllmSchedulerFactory

RUNNING = (16, 64, 256, 1024)
NUM_PROMPT_TOKENS = 512
NUM_STEPS = 64
TimedStep = Callable[[], int]  # does one step, returns its CPU nanoseconds


def options(num_running: int) -> tuple[SchedulerConfig, CacheConfig]:
    tokens = NUM_PROMPT_TOKENS + 2 * NUM_STEPS
    return (
        SchedulerConfig(
            max_num_seqs=num_running,
            max_num_batched_tokens=num_running * NUM_PROMPT_TOKENS,
            max_model_len=8192,
        ),
        CacheConfig(num_running * (tokens // 16 + 2) + 1),
    )


def add_requests(scheduler, num_running: int) -> None:
    for number in range(num_running):
        scheduler.add_request(Request(number, NUM_PROMPT_TOKENS, 4096, arrival_time=float(number)))


def stepper(scheduler) -> TimedStep:
    """Steps of a scheduler with our interface."""

    def step() -> int:
        start = thread_time_ns()
        output = scheduler.schedule()
        spent = thread_time_ns() - start
        sampled = dict.fromkeys(output.sampling_req_ids, 1)
        start = thread_time_ns()
        scheduler.update_from_output(output, sampled)
        return spent + thread_time_ns() - start

    return step


def leap_stepper(scheduler) -> TimedStep:
    """The same of the scheduler that keeps steady decodes as sums, a step at a time."""

    def step() -> int:
        start = thread_time_ns()
        scheduler.process(scheduler.next_step())
        return thread_time_ns() - start

    return step


def vllm_stepper(adapter) -> TimedStep:
    """Steps of vLLM's scheduler, called as vLLM's engine calls it; the adapter takes no time."""
    theirs = adapter.theirs

    def step() -> int:
        start = thread_time_ns()
        output = theirs.schedule()
        spent = thread_time_ns() - start
        keys = list(output.num_scheduled_tokens)
        results = adapter.model_output(keys, [[7]] * len(keys))
        start = thread_time_ns()
        theirs.update_from_output(output, results)
        return spent + thread_time_ns() - start

    return step


def steppers(num_running: int, factory) -> dict[str, TimedStep]:
    config, cache = options(num_running)
    made = {
        "ours": create_scheduler(config, cache),
        "ours, ledger": Scheduler(config, cache, KVLedger(cache, config)),
        "ours, sums": create_leap_scheduler(config, cache),
    }
    if factory is not None:
        made["vLLM"] = factory(config, cache)
    wrap = {"ours, sums": leap_stepper, "vLLM": vllm_stepper}
    for scheduler in made.values():
        add_requests(scheduler, num_running)
    return {name: wrap.get(name, stepper)(scheduler) for name, scheduler in made.items()}


def medians_us(num_running: int, factory) -> dict[str, float]:
    timed = steppers(num_running, factory)
    times: dict[str, list[int]] = {name: [] for name in timed}
    for number in range(NUM_STEPS):
        for name, step in timed.items():
            spent = step()
            if number:  # the first step prefills
                times[name].append(spent)
    return {name: median(values) / 1000 for name, values in times.items()}


def main(repeats: int) -> None:
    try:
        factory = VllmSchedulerFactory()
        print(f"vLLM {factory.version}, Python {sys.version.split()[0]}")
    except VllmAdapterError as error:
        factory = None
        print(error)
    for num_running in RUNNING:
        runs = [medians_us(num_running, factory) for _ in range(repeats)]
        best = {name: min(run[name] for run in runs) for name in runs[0]}
        shown = "  ".join(f"{name} {us:9.1f} us" for name, us in best.items())
        ratio = f"  vLLM / ours {best['vLLM'] / best['ours']:.1f}" if factory else ""
        print(f"{num_running:5} running: {shown}{ratio}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
