"""A load on a machine: its simulation, and statistics of it beside those of real runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from calibration import CostModel, GpuSpec, ModelSpec, Profile, ProfileCost
from calibration.bench.held_out import bias
from sim.config.resolved import EngineConfig, ResolvedStudy
from sim.engine import HostOverhead
from sim.metrics import e2e_s, is_finished, tpot_s, ttft_s
from sim.scheduler.config import CacheConfig, SchedulerConfig
from sim.simulation import simulate
from sim.validate.scattered_cost import Scatter, ScatteredCost
from traces import Trace

FloatArray = npt.NDArray[np.float64]
NUM_SIMULATED = 20
METRICS = ("TTFT", "TPOT", "E2E")
STATISTICS: Mapping[str, float | None] = {"mean": None, "p50": 50.0, "p99": 99.0}


@dataclass(frozen=True, slots=True)
class Machine:
    """A model on a device: measured step times, and the host's time of a step."""

    model: ModelSpec
    profile: Profile
    host: HostOverhead


@dataclass(frozen=True, slots=True)
class Load:
    """A trace, and how the engine serves it."""

    name: str
    trace: Trace
    scheduler: SchedulerConfig
    cache: CacheConfig


@dataclass(frozen=True, slots=True)
class StatisticError:
    """One statistic of one metric: means over simulated and over real runs, and their spread.

    `noise` is the standard deviation of the real runs over their mean, `predicted_noise` that of
    the simulated ones; NaN for a single run.
    """

    metric: str
    statistic: str
    predicted_s: float
    measured_s: float
    noise: float
    predicted_noise: float

    @property
    def error(self) -> float:
        """Signed relative error."""
        return self.predicted_s / self.measured_s - 1.0


@dataclass(frozen=True, slots=True)
class StepErrors:
    """Executed steps beside the profile's times for the same batches, and the kind of each.

    `run` has the number of the run that each was a step of, `has_chunks` whether it held more than
    decodes.
    """

    measured_s: FloatArray
    predicted_s: FloatArray
    kinds: tuple[str, ...]
    run: npt.NDArray[np.int64]
    has_chunks: npt.NDArray[np.bool_]

    def of_kind(self, kind: str) -> StepErrors:
        """Return the steps of one kind."""
        here = np.array([own == kind for own in self.kinds])
        kinds = tuple(own for own in self.kinds if own == kind)
        return StepErrors(
            self.measured_s[here],
            self.predicted_s[here],
            kinds,
            self.run[here],
            self.has_chunks[here],
        )

    @property
    def scatter(self) -> Scatter:
        """How far steps scatter about their predictions within a run."""
        ratios = np.log(self.measured_s / self.predicted_s)
        for run in np.unique(self.run):
            ratios[self.run == run] -= np.median(ratios[self.run == run])
        return Scatter(_spread(ratios[~self.has_chunks]), _spread(ratios[self.has_chunks]))

    @property
    def mape(self) -> float:
        """Mean absolute relative error."""
        return float(np.mean(np.abs(self.predicted_s / self.measured_s - 1.0)))

    @property
    def bias(self) -> float:
        """Signed relative error of a step in the mean, as of held-out steps."""
        return bias(self.predicted_s / self.measured_s - 1.0)

    @property
    def total_error(self) -> float:
        """Signed relative error of the time of all steps together."""
        return float(self.predicted_s.sum() / self.measured_s.sum()) - 1.0


def _spread(ratios: FloatArray) -> float:
    """Standard deviation as half of what lies between the percentiles 16 and 84.

    So a few steps in which the machine did something else count for nothing.
    """
    if not len(ratios):
        return 0.0
    low, high = np.percentile(ratios, (16, 84))
    return float(high - low) / 2


def predict(machine: Machine, load: Load) -> dict[str, FloatArray]:
    """Simulate a load; returns times of each finished request by metric, in order of requests."""
    return _simulate(machine, load, ProfileCost(machine.profile))[0]


def predict_scattered(
    machine: Machine, load: Load, scatter: Scatter
) -> tuple[list[dict[str, FloatArray]], float]:
    """Simulate a load some times, each with other steps a little longer or shorter.

    Who is decoded beside whose prompt hangs on such chances, in reality as in a simulation, and
    the tail of a hundred requests is made of a few of them: only means over runs compare.
    `scatter`: `StepErrors.scatter`. Returns what `predict` does, of each run, and the mean number
    of preemptions.
    """
    profile = ProfileCost(machine.profile)
    runs = [
        _simulate(machine, load, ScatteredCost(profile, scatter, number))
        for number in range(NUM_SIMULATED)
    ]
    return [times for times, _ in runs], float(np.mean([count for _, count in runs]))


def _simulate(machine: Machine, load: Load, cost: CostModel) -> tuple[dict[str, FloatArray], int]:
    study = ResolvedStudy(
        name="validation",
        seed=0,
        trace=load.trace,
        model=machine.model,
        gpu=_as_gpu(machine.profile),
        cost_model=cost,
        engine=EngineConfig(
            scheduler=load.scheduler,
            cache=load.cache,
            num_gpu_blocks_origin="as given to the engine",
            host_overhead_s=machine.host.per_step_s,
            host_overhead_per_request_s=machine.host.per_request_s,
        ),
    )
    result = simulate(study)
    done = is_finished(result.requests)
    times = {"TTFT": ttft_s, "TPOT": tpot_s, "E2E": e2e_s}
    columns = {name: times[name](result.requests)[done] for name in METRICS}
    return columns, int(result.steps["num_preempted"].sum())


def _as_gpu(profile: Profile) -> GpuSpec:
    """The machine by name only; a profile asks no data sheet."""
    name = profile.provenance.device
    return GpuSpec(name, 0.0, None, 0, 0, 0.0, "", 0.0, "the profile's own machine")


def statistics_of(
    predicted: Sequence[Mapping[str, FloatArray]], measured: Sequence[Mapping[str, FloatArray]]
) -> tuple[StatisticError, ...]:
    """Return every statistic of every metric, as means over the simulated and the real runs."""
    return tuple(
        _statistic(metric, name, predicted, measured) for metric in METRICS for name in STATISTICS
    )


def pooled(runs: Sequence[Mapping[str, FloatArray]]) -> dict[str, FloatArray]:
    """Times of all runs together, by metric."""
    return {metric: np.concatenate([times[metric] for times in runs]) for metric in METRICS}


def _statistic(
    metric: str,
    name: str,
    predicted: Sequence[Mapping[str, FloatArray]],
    measured: Sequence[Mapping[str, FloatArray]],
) -> StatisticError:
    predicted_s, predicted_noise = _over_runs(predicted, metric, name)
    measured_s, noise = _over_runs(measured, metric, name)
    return StatisticError(metric, name, predicted_s, measured_s, noise, predicted_noise)


def _over_runs(
    runs: Sequence[Mapping[str, FloatArray]], metric: str, name: str
) -> tuple[float, float]:
    """Mean of a statistic over runs, and its standard deviation as a share of that."""
    values = np.array([_of(times[metric], name) for times in runs])
    mean = float(values.mean())
    return mean, float(values.std(ddof=1)) / mean if len(values) > 1 else float("nan")


def _of(times: FloatArray, statistic: str) -> float:
    percent = STATISTICS[statistic]
    return float(np.nanmean(times) if percent is None else np.nanpercentile(times, percent))
