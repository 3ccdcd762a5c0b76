"""The simulator beside the executor: the same trace, scheduler options and machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from calibration import ProfileCost
from sim.executor.executor import ExecutedRun
from sim.scheduler.config import CacheConfig, SchedulerConfig
from sim.sim_request import SimRequest
from sim.validate.load_study import (
    FloatArray,
    Load,
    Machine,
    StatisticError,
    StepErrors,
    pooled,
    predict,
    predict_scattered,
    statistics_of,
)
from traces import Lognormal, LognormalLengths, PoissonArrivals, generate


@dataclass(frozen=True, slots=True)
class LoadComparison:
    """All that is compared for one load."""

    load: Load
    steps: StepErrors
    statistics: tuple[StatisticError, ...]
    measured: Mapping[str, FloatArray]
    predicted: Mapping[str, FloatArray]
    num_preemptions: tuple[float, float]
    """Of the executor and of the simulation, means over runs."""
    host_error: float
    """Signed relative error of the host's time, over all steps."""


def compare(machine: Machine, load: Load, runs: Sequence[ExecutedRun]) -> LoadComparison:
    """Set simulations of a load beside runs of it on the executor; steps scatter as its do."""
    steps = _step_errors(machine, runs)
    predicted, num_preemptions = predict_scattered(machine, load, steps.scatter)
    measured = [request_times(run.requests) for run in runs]
    executed = [sum(step.num_preempted for step in run.steps) for run in runs]
    return LoadComparison(
        load,
        steps,
        statistics_of(predicted, measured),
        pooled(measured),
        pooled(predicted),
        (float(np.mean(executed)), num_preemptions),
        _host_error(machine, runs),
    )


def request_times(requests: Sequence[SimRequest]) -> dict[str, FloatArray]:
    """Return TTFT, TPOT (NaN for one token) and E2E of finished requests."""
    arrival, first, last, outputs = (
        np.array(column, dtype=np.float64)
        for column in zip(
            *(
                (r.arrival_time, r.first_token_s, r.last_token_s, r.num_output_tokens)
                for r in requests
            ),
            strict=True,
        )
    )
    gaps = np.where(outputs > 1, outputs - 1, np.nan)
    return {"TTFT": first - arrival, "TPOT": (last - first) / gaps, "E2E": last - arrival}


def make_loads(
    machine: Machine,
    scheduler: SchedulerConfig,
    block_size: int,
    num_requests: int,
    rng: np.random.Generator,
) -> list[Load]:
    """Return three loads for this machine: light, busy, and short of KV blocks.

    Rates are shares of what a simulation of all requests at once gets through. The last pool
    holds about six requests, so that the others queue for it and some are preempted.
    """
    longest = scheduler.max_model_len
    lengths = LognormalLengths(
        Lognormal(longest / 8, 0.7, 4, longest // 2), Lognormal(longest / 32, 0.6, 2, longest // 4)
    )
    mean = longest / 8 * 1.3 + longest / 32 * 1.2
    ample = CacheConfig(scheduler.max_num_seqs * longest // block_size + 1, block_size)
    scarce = CacheConfig(max(round(6 * mean), longest) // block_size + 1, block_size)

    def load(name: str, cache: CacheConfig, share: float) -> Load:
        at_once = generate(
            num_requests=num_requests, arrivals=PoissonArrivals(1e6), lengths=lengths, rng=rng
        )
        rate = share * num_requests / _span_s(machine, Load(name, at_once, scheduler, cache))
        trace = generate(
            num_requests=num_requests, arrivals=PoissonArrivals(rate), lengths=lengths, rng=rng
        )
        return Load(f"{name}, {rate:.2f} requests/s", trace, scheduler, cache)

    return [
        load("light", ample, 0.3),
        load("busy", ample, 0.7),
        load("KV-starved", scarce, 0.85),
    ]


def _span_s(machine: Machine, load: Load) -> float:
    """Time to get through requests that all come at once."""
    return float(np.max(predict(machine, load)["E2E"]))


def _step_errors(machine: Machine, runs: Sequence[ExecutedRun]) -> StepErrors:
    cost = ProfileCost(machine.profile)
    steps = [step for run in runs for step in run.steps]
    has_chunks = [bool(step.shape.chunks) for step in steps]
    return StepErrors(
        np.array([step.end_s - step.start_s for step in steps]),
        np.array([cost.step_time_s(step.shape) for step in steps]),
        tuple("with chunks" if has else "decodes only" for has in has_chunks),
        np.repeat(np.arange(len(runs)), [len(run.steps) for run in runs]),
        np.array(has_chunks),
    )


def _host_error(machine: Machine, runs: Sequence[ExecutedRun]) -> float:
    steps = [step for run in runs for step in run.steps if not step.is_after_idle]
    measured = sum(step.host_s for step in steps)
    predicted = sum(machine.host.step_s(step.num_requests) for step in steps)
    return predicted / measured - 1.0 if measured else 0.0
