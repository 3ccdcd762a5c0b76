"""What a real engine's step log gives: the machine's profile, and runs beside their simulation."""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from calibration import ModelSpec, Profile, ProfileCost
from calibration.bench.cpu import cpu_clock, cpu_name
from calibration.bench.held_out import HeldOutStep, region, summarise
from calibration.bench.pace import scaled
from calibration.profile_format import ProfileProvenance
from calibration.step_log import TimedStep, fit_profile, lost_share
from sim.engine import HostOverhead
from sim.executor.host_line import fit_host_overhead
from sim.validate.engine_log import EngineRun, LoggedStep
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
from sim.validate.vllm_server import EngineSettings, VllmServer, Workload
from traces import Trace

_HELD_OUT_EVERY = 5
_MIN_STEPS_OF_A_SIZE = 5
_LONGEST_OUTPUT, _LONGEST_GAP_S = 48, 0.5


def random_burst(rng: np.random.Generator, settings: EngineSettings) -> Workload:
    """Return some requests of any sizes, half of them at once: batches of every kind follow."""
    count = _log_uniform(rng, 1, settings.max_num_seqs)
    requests = []
    for _ in range(count):
        outputs = _log_uniform(rng, 2, _LONGEST_OUTPUT)
        prompt = _log_uniform(rng, 4, settings.max_model_len - outputs - 1)
        arrival_s = float(rng.integers(0, 2) * rng.uniform(0.0, _LONGEST_GAP_S))
        requests.append((arrival_s, prompt, outputs))
    return sorted(requests)


def machine_of(
    server: VllmServer, model: ModelSpec, bursts: Sequence[EngineRun], date: str
) -> Machine:
    """Return step times and host time fitted to bursts; every fifth is held out of the fit.

    Interruptions lengthen all step times by their share, as they do in service. The `fit` of the
    profile says how far the held-out steps are missed.

    Raises:
        CalibrationError: too few steps, or none of a kind.
    """
    fitted = [run for i, run in enumerate(bursts) if i % _HELD_OUT_EVERY]
    held_out = [step for run in bursts[::_HELD_OUT_EVERY] for step in run.steps]
    steps = [TimedStep(step.shape, _device_s(step)) for run in fitted for step in run.steps]
    undisturbed = fit_profile(steps, _provenance(server, model, date))
    lost = lost_share(steps, undisturbed)
    profile = scaled(undisturbed, 1.0 + lost)
    host = host_overhead(fitted)
    fit = {
        "method": "least squares of relative errors over whole steps that the engine logged; all"
        " times longer by lost_share, which is what interruptions took",
        "steps": len(steps),
        "lost_share": round(lost, 5),
        "held_out": summarise(_held_out(profile, held_out)),
        "host_overhead": {
            "per_step_us": round(host.per_step_s * 1e6, 2),
            "per_request_us": round(host.per_request_s * 1e6, 2),
        },
    }
    return Machine(model, replace(profile, fit=fit), host)


def host_overhead(runs: Sequence[EngineRun]) -> HostOverhead:
    """Return the mean time between two steps on the device, as a line over requests."""
    by_size: dict[int, list[float]] = {}
    for num_requests, host_s in host_times(runs):
        by_size.setdefault(num_requests, []).append(host_s)
    # Means, not clipped: all of it passes in service, too.
    return fit_host_overhead(
        [
            (size, float(np.mean(times)), len(times))
            for size, times in sorted(by_size.items())
            if len(times) >= _MIN_STEPS_OF_A_SIZE
        ]
    )


def host_times(runs: Sequence[EngineRun]) -> list[tuple[int, float]]:
    """Return (requests, seconds between the step before and this one), but for steps after idling.

    That is: results processed, answers handed on, new requests taken in, the next step decided.
    """
    return [
        (step.num_requests, step.device_start_s - before.device_end_s)
        for run in runs
        for before, step in pairwise(run.steps)
        if before.num_unfinished
    ]


@dataclass(frozen=True, slots=True)
class VllmComparison:
    """One load: what its runs on the engine and its simulation have in common, and what not."""

    load: Load
    steps: StepErrors
    client: tuple[StatisticError, ...]
    """Simulated against what the client saw."""
    engine: tuple[StatisticError, ...]
    """Simulated against what happened in the engine's own process."""
    at_pace: tuple[StatisticError, ...]
    """The same with all step times scaled by what these runs' steps took in all."""
    measured: Mapping[str, FloatArray]
    predicted: Mapping[str, FloatArray]
    num_preemptions: tuple[float, float]
    host_s: tuple[float, float]
    """Mean host time of a step: measured, simulated."""
    delays: Mapping[str, FloatArray]


def compare_runs(machine: Machine, load: Load, runs: Sequence[EngineRun]) -> VllmComparison:
    """Set simulations of a load beside its runs; steps scatter as theirs do."""
    client = [run.seen_by_client() for run in runs]
    engine = [run.seen_by_engine() for run in runs]
    steps = _step_errors(machine, runs)
    predicted, num_preemptions = predict_scattered(machine, load, steps.scatter)
    hosts = host_times(runs)
    delays = [run.delays() for run in runs]
    executed = [sum(step.num_preempted for step in run.steps) for run in runs]
    paced = replace(machine, profile=scaled(machine.profile, 1.0 / (1.0 + steps.total_error)))
    return VllmComparison(
        load,
        steps,
        statistics_of(predicted, client),
        statistics_of(predicted, engine),
        statistics_of(predict_scattered(paced, load, steps.scatter)[0], engine),
        pooled(client),
        pooled(predicted),
        (float(np.mean(executed)), num_preemptions),
        (
            float(np.mean([seconds for _, seconds in hosts])),
            float(np.mean([machine.host.step_s(size) for size, _ in hosts])),
        ),
        {name: np.concatenate([one[name] for one in delays]) for name in delays[0]},
    )


def shortened(trace: Trace, factor: float, settings: EngineSettings) -> Trace:
    """Return the trace with lengths divided by `factor`, rounded up.

    What would not fit the model is cut: outputs to a quarter of its length, prompts to the rest.
    """
    longest_output = settings.max_model_len // 4
    outputs = np.ceil(trace.num_output_tokens / factor).astype(np.int64)
    prompts = np.ceil(trace.num_prompt_tokens / factor).astype(np.int64)
    return Trace.from_columns(
        trace.arrival_s - trace.arrival_s[0],
        np.minimum(prompts, settings.max_model_len - longest_output),
        np.minimum(outputs, longest_output),
    )


def at_load(machine: Machine, load: Load, share: float) -> Load:
    """Return the load with its time stretched or squeezed: a share of what the engine gets through.

    That is the rate at which the simulation serves all its requests when they come at once; the
    pattern of arrivals stays the trace's.
    """
    trace = load.trace
    at_once = replace(load, trace=trace.with_arrivals(np.zeros(len(trace)), "all at once"))
    span_s = float(np.max(predict(machine, at_once)["E2E"])) / share
    last_s = float(trace.arrival_s[-1])
    factor = span_s / last_s if last_s > 0 else 1.0
    stretched = trace.with_arrivals(trace.arrival_s * factor, f"time multiplied by {factor:.4g}")
    return replace(load, name=f"{load.name}, {len(trace) / span_s:.2f} requests/s", trace=stretched)


def workload_of(trace: Trace) -> Workload:
    """Return a trace as the engine's client takes it."""
    columns = (trace.arrival_s, trace.num_prompt_tokens, trace.num_output_tokens)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def _provenance(server: VllmServer, model: ModelSpec, date: str) -> ProfileProvenance:
    return ProfileProvenance(
        device=cpu_name(),
        driver=platform.release(),
        torch=server.torch,
        kernel_backend=f"vLLM {server.version} on the CPU",
        model=model.name,
        weight_dtype=model.weight_dtype,
        kv_cache_dtype=model.dtype,
        tensor_parallel_size=1,
        date=date,
        execution="eager, 1 thread",
        source="headway validate vllm",
        notes=cpu_clock(),
    )


def _device_s(step: LoggedStep) -> float:
    return step.device_end_s - step.device_start_s


def _held_out(profile: Profile, steps: Sequence[LoggedStep]) -> list[HeldOutStep]:
    cost = ProfileCost(profile)
    return [
        HeldOutStep(region(step.shape), _device_s(step), cost.step_time_s(step.shape))
        for step in steps
    ]


def _step_errors(machine: Machine, runs: Sequence[EngineRun]) -> StepErrors:
    steps = [step for run in runs for step in run.steps]
    found = _held_out(machine.profile, steps)
    return StepErrors(
        np.array([step.measured_s for step in found]),
        np.array([step.predicted_s for step in found]),
        tuple(step.region for step in found),
        np.repeat(np.arange(len(runs)), [len(run.steps) for run in runs]),
        np.array([bool(step.shape.chunks) for step in steps]),
    )


def _log_uniform(rng: np.random.Generator, low: int, high: int) -> int:
    return round(math.exp(rng.uniform(math.log(low), math.log(high))))
