"""A load on a machine: its simulation, and statistics of it beside those of real runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from calibration import GpuSpec, ModelSpec, Profile, ProfileCost
from sim.config.resolved import EngineConfig, ResolvedStudy
from sim.engine import HostOverhead
from sim.metrics import e2e_s, is_finished, tpot_s, ttft_s
from sim.scheduler.config import CacheConfig, SchedulerConfig
from sim.simulation import simulate
from traces import Trace

FloatArray = npt.NDArray[np.float64]
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
    """One statistic of one metric: predicted, measured (mean over runs), and the runs' own spread.

    `noise` is the standard deviation of the runs over their mean, NaN for a single run.
    """

    metric: str
    statistic: str
    predicted_s: float
    measured_s: float
    noise: float

    @property
    def error(self) -> float:
        """Signed relative error."""
        return self.predicted_s / self.measured_s - 1.0


@dataclass(frozen=True, slots=True)
class StepErrors:
    """Executed steps beside the profile's times for the same batches, and the kind of each."""

    measured_s: FloatArray
    predicted_s: FloatArray
    kinds: tuple[str, ...]

    def of_kind(self, kind: str) -> StepErrors:
        """Return the steps of one kind."""
        here = np.array([own == kind for own in self.kinds])
        kinds = tuple(own for own in self.kinds if own == kind)
        return StepErrors(self.measured_s[here], self.predicted_s[here], kinds)

    @property
    def mape(self) -> float:
        """Mean absolute relative error."""
        return float(np.mean(np.abs(self.predicted_s / self.measured_s - 1.0)))

    @property
    def bias(self) -> float:
        """Mean signed relative error."""
        return float(np.mean(self.predicted_s / self.measured_s - 1.0))

    @property
    def total_error(self) -> float:
        """Signed relative error of the time of all steps together."""
        return float(self.predicted_s.sum() / self.measured_s.sum()) - 1.0


def predict(machine: Machine, load: Load) -> dict[str, FloatArray]:
    """Simulate a load; returns times of each finished request by metric, in order of requests."""
    return simulated(machine, load)[0]


def simulated(machine: Machine, load: Load) -> tuple[dict[str, FloatArray], int]:
    """Return what `predict` does, and the number of preemptions."""
    study = ResolvedStudy(
        name="validation",
        seed=0,
        trace=load.trace,
        model=machine.model,
        gpu=_as_gpu(machine.profile),
        cost_model=ProfileCost(machine.profile),
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
    predicted: Mapping[str, FloatArray], measured: Sequence[Mapping[str, FloatArray]]
) -> tuple[StatisticError, ...]:
    """Return every statistic of every metric; `measured` are the runs."""
    return tuple(
        _statistic(metric, name, predicted, measured) for metric in METRICS for name in STATISTICS
    )


def _statistic(
    metric: str,
    name: str,
    predicted: Mapping[str, FloatArray],
    measured: Sequence[Mapping[str, FloatArray]],
) -> StatisticError:
    values = np.array([_of(times[metric], name) for times in measured])
    mean = float(values.mean())
    noise = float(values.std(ddof=1)) / mean if len(values) > 1 else float("nan")
    return StatisticError(metric, name, _of(predicted[metric], name), mean, noise)


def _of(times: FloatArray, statistic: str) -> float:
    percent = STATISTICS[statistic]
    return float(np.nanmean(times) if percent is None else np.nanpercentile(times, percent))
