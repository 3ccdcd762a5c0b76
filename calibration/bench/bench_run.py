"""One calibration from its options to its profile."""

import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from calibration.bench.bench_setup import Bench, BenchOptions, Rng, open_bench, out_of_memory
from calibration.bench.decoder import Decoder
from calibration.bench.device import first_line
from calibration.bench.group import with_all_reduces
from calibration.bench.held_out import HeldOutStep
from calibration.bench.kernel_report import describe_choice
from calibration.bench.plan import CalibrationPlan
from calibration.bench.points import Point
from calibration.bench.samples import SampleStore
from calibration.bench.session import BenchProgress, Session
from calibration.bench.tables import describe_fit, held_out_steps, make_profile
from calibration.checks import require_seconds
from calibration.errors import CalibrationError, InterruptedCalibrationError
from calibration.profile_format import Profile

__all__ = ["BenchOptions", "BenchRun", "Calibration", "run_calibration"]


@dataclass(frozen=True, slots=True)
class Calibration:
    """What a calibration brings back. `is_partial`: stopped before its time was up."""

    profile: Profile
    held_out: Sequence[HeldOutStep]
    is_partial: bool


def run_calibration(
    options: BenchOptions,
    *,
    rng: Rng,
    samples_file: Path | None = None,
    resume: bool = False,
    clock: Callable[[], float] = time.perf_counter,
    on_progress: Callable[[BenchProgress], bool] = lambda _: True,
) -> Calibration:
    """Measure within the budget and return the profile.

    Samples go to `samples_file` as they are taken; with `resume` those in it count. `on_progress`
    returns False to stop; the budget is seconds of `clock`.

    Raises:
        CalibrationError: as `BenchRun` and its methods.
    """
    run = BenchRun(
        options,
        rng=rng,
        samples_file=samples_file,
        resume=resume,
        clock=clock,
        on_progress=on_progress,
    )
    run.measure()
    return run.result()


class BenchRun:
    """A calibration that can be spread over time: measure some, do other work, measure more.

    Arguments are those of `run_calibration`.

    Raises:
        CalibrationError: no such device, too little memory, a file of samples of something else.
    """

    def __init__(
        self,
        options: BenchOptions,
        *,
        rng: Rng,
        samples_file: Path | None = None,
        resume: bool = False,
        clock: Callable[[], float] = time.perf_counter,
        on_progress: Callable[[BenchProgress], bool] = lambda _: True,
    ) -> None:
        require_seconds("the time to measure", options.budget_s, positive=True)
        if resume and not options.kernel:  # nearly equal ones may come out the other way round
            options = replace(options, kernel=SampleStore.recorded(samples_file, "kernel_backend"))
        self._bench = open_bench(options, rng)
        self._store = SampleStore(self._bench.header(), samples_file)
        if resume:
            self._store.resume()
        else:
            self._store.start()
        self._session = Session(
            self._bench.sections.measure,
            self._store,
            budget_s=options.budget_s,
            clock=clock,
            rng=rng("order"),
            on_progress=on_progress,
        )
        self._needed = self._bench.plan.points()

    @property
    def decoder(self) -> Decoder:
        """The model that is measured: a device may have no room for another."""
        return self._bench.decoder

    @property
    def kernels(self) -> dict[str, Any] | None:
        """What became of the attention kernels of CUDA; None on the CPU, where there is one."""
        return _kernels(self._bench.decoder)

    def measure(self, share: float = 1.0) -> None:
        """Measure until this share of the budget is spent in all.

        Raises:
            CalibrationError: a device that fails on the way; samples so far are kept.
        """
        name = self._bench.device.name
        try:
            self._session.run(self._bench.plan, share)
        except torch.OutOfMemoryError as error:
            raise CalibrationError(out_of_memory(name, error)) from error
        except RuntimeError as error:
            raise CalibrationError(
                f"{name} failed while measuring: {first_line(error)}; samples so far are kept:"
                " go on with --resume"
            ) from error

    def result(self) -> Calibration:
        """Return the profile of what was measured so far.

        Raises:
            CalibrationError: a budget or an interrupt too early for a profile.
        """
        _check_filled(self._bench.plan, self._store, self._needed, self._session)
        settled = deepcopy(self._bench.plan)  # measuring may go on with what has no samples yet
        settled.settle(self._store)
        return _result(self._bench, settled, self._store, is_partial=self._session.was_stopped)


def _result(
    bench: Bench, plan: CalibrationPlan, store: SampleStore, *, is_partial: bool
) -> Calibration:
    """The profile of a plan with its fit, and the held-out steps."""
    profile = make_profile(plan, store, bench.provenance(bench.device.clocks_now()))
    fit = describe_fit(profile, plan, store, bench.shapes)
    kernels = _kernels(bench.decoder)
    if kernels is not None:
        fit["attention_kernels"] = kernels
    steps = held_out_steps(profile, plan, store, bench.shapes)
    profile = replace(profile, fit=fit)
    if bench.all_reduces is not None:
        profile = with_all_reduces(profile, bench.all_reduces, bench.whole)
    return Calibration(profile, steps, is_partial)


def _kernels(decoder: Decoder) -> dict[str, Any] | None:
    if not decoder.device.is_cuda:
        return None
    return describe_choice(decoder.attention.name, decoder.kernels_tried)


def _check_filled(
    plan: CalibrationPlan, store: SampleStore, needed: Sequence[Point], session: Session
) -> None:
    """A table has no gaps: the coarse grid must have been measured."""
    coarse = {point for point in needed if not _is_check(plan, point)}
    missing = [point for point in coarse if point not in store.samples]
    if not missing:
        return
    done = len(coarse) - len(missing)
    kept = f"the samples are in {store.file}: go on with --resume" if store.file else "start anew"
    found = f"{done} of {len(coarse)} points of the coarse grid were measured"
    if session.was_stopped:
        raise InterruptedCalibrationError(f"interrupted: {found}, too few for a profile; {kept}")
    minutes = session.elapsed_s / 60 * (len(coarse) / max(done, 1)) * 2
    raise CalibrationError(
        f"the time was too short: {found}; give at least {minutes:.1f} minutes ({kept})"
    )


def _is_check(plan: CalibrationPlan, point: Point) -> bool:
    return point in plan.checks
