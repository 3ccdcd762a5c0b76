"""One calibration from its options to its profile."""

import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from calibration.bench.all_reduce import time_all_reduces
from calibration.bench.attention import PagedKVCache, make_cache
from calibration.bench.axes import Limits
from calibration.bench.decoder import Decoder
from calibration.bench.device import BenchDevice, open_device
from calibration.bench.group import AllReduceTimes, message_sizes, share_of, with_all_reduces
from calibration.bench.held_out import HeldOutStep, random_mixes
from calibration.bench.plan import CalibrationPlan
from calibration.bench.points import Point
from calibration.bench.samples import SampleStore
from calibration.bench.sections import OPERATIONS, Sections, random_pieces
from calibration.bench.session import BenchProgress, Session
from calibration.bench.step_batch import StepBatch, pack
from calibration.bench.tables import describe_fit, held_out_steps, make_profile
from calibration.bench.timing import make_timer
from calibration.checks import require_seconds
from calibration.errors import CalibrationError, InterruptedCalibrationError
from calibration.model_spec import ModelSpec
from calibration.profile_format import Profile, ProfileProvenance

_CACHE_SHARE = 0.5  # of the memory that is free once the weights are there
_GIB = 2**30

Rng = Callable[[str], np.random.Generator]
"""Gives the random stream of a name, from its start."""


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """What to measure and for how long.

    With `tensor_parallel_size` above 1 one GPU's share of the model is measured on `device`, and
    all-reduces between as many devices of its kind (processes, on the CPU).
    """

    model: ModelSpec
    tensor_parallel_size: int = 1
    device: str = "cpu"
    num_threads: int = 1
    execution: str = "eager"
    budget_s: float = 300.0
    max_num_batched_tokens: int = 512
    max_num_seqs: int = 32
    max_model_len: int = 1024
    block_size: int = 16
    num_held_out: int = 45
    git_commit: str = ""
    date: str = ""


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
        self._bench = _Bench(options, rng, _time_group(options))
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

    def measure(self, share: float = 1.0) -> None:
        """Measure until this share of the budget is spent in all.

        Raises:
            CalibrationError: a device that fails on the way; samples so far are kept.
        """
        name = self._bench.device.name
        try:
            self._session.run(self._bench.plan, share)
        except torch.OutOfMemoryError as error:
            raise CalibrationError(f"{name}: out of memory: {error}") from error
        except RuntimeError as error:
            raise CalibrationError(
                f"{name} failed while measuring: {error}; samples so far are kept:"
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
        return self._bench.result(settled, self._store, is_partial=self._session.was_stopped)


class _Bench:
    """Device, decoder, cache and plan of one calibration."""

    def __init__(self, options: BenchOptions, rng: Rng, all_reduces: AllReduceTimes | None) -> None:
        self._all_reduces, self._whole = all_reduces, options.model
        options = replace(options, model=share_of(options.model, options.tensor_parallel_size))
        self.options = options
        self.device = open_device(options.device, options.num_threads)
        timer = make_timer(self.device, options.execution)
        self.decoder = Decoder(options.model, self.device, options.block_size)
        self.limits = _limits(options, self.device)
        self.cache = _cache(self.decoder, self.limits, options)
        batches = _held_out_batches(self.decoder, self.cache, self.limits, options, rng)
        self.shapes = [batch.shape for batch in batches]
        self.plan = CalibrationPlan(self.limits, OPERATIONS, len(batches))
        self.sections = Sections(self.decoder, self.cache, timer, rng("blocks"), batches)

    def header(self) -> dict[str, Any]:
        """What the samples are of."""
        entries = asdict(self._provenance())
        for changing in ("date", "git_commit", "notes"):
            del entries[changing]
        return {
            **entries,
            **asdict(self.limits),
            "block_size": self.options.block_size,
            "decode_contexts": "equal",  # of the tables' batches; they were spread once
        }

    def result(self, plan: CalibrationPlan, store: SampleStore, *, is_partial: bool) -> Calibration:
        """The profile of a plan with its fit, and the held-out steps."""
        profile = make_profile(plan, store, self._provenance())
        fit = describe_fit(profile, plan, store, self.shapes)
        steps = held_out_steps(profile, plan, store, self.shapes)
        profile = replace(profile, fit=fit)
        if self._all_reduces is not None:
            profile = with_all_reduces(profile, self._all_reduces, self._whole)
        return Calibration(profile, steps, is_partial)

    def _provenance(self) -> ProfileProvenance:
        options, device = self.options, self.device
        return ProfileProvenance(
            device=device.name,
            driver=device.driver,
            torch=torch.__version__,
            kernel_backend=self.decoder.attention.name,
            model=options.model.name,
            weight_dtype=options.model.weight_dtype,
            kv_cache_dtype=options.model.dtype,
            tensor_parallel_size=options.tensor_parallel_size,
            date=options.date,
            execution=device.execution(options.execution),
            source="headway calibrate",
            git_commit=options.git_commit,
            notes=device.clocks,
        )


def _time_group(options: BenchOptions) -> AllReduceTimes | None:
    """The group's all-reduces; None for a group of one. Before anything fills the devices."""
    if options.tensor_parallel_size == 1:
        return None
    share_of(options.model, options.tensor_parallel_size)  # to refuse before measuring
    device = open_device(options.device, options.num_threads)
    limits = Limits(options.max_num_batched_tokens, options.max_num_seqs, options.max_model_len, 1)
    sizes = message_sizes(options.model, limits)
    return time_all_reduces(device, options.tensor_parallel_size, options.model.dtype, sizes)


def _limits(options: BenchOptions, device: BenchDevice) -> Limits:
    model = options.model
    bytes_per_token = 2 * model.num_hidden_layers * model.kv_size * model.dtype_bytes
    room = int(_CACHE_SHARE * device.free_bytes() // bytes_per_token)
    wanted = options.max_num_seqs * options.max_model_len
    if options.max_model_len > model.max_position_embeddings:
        raise CalibrationError(
            f"max_model_len {options.max_model_len} is more than {model.max_position_embeddings},"
            f" the max_position_embeddings of {model.name}"
        )
    if room < 2 * options.max_model_len:
        raise CalibrationError(
            f"{device.name} has {device.free_bytes() / _GIB:.1f} GiB free beside the weights of"
            f" {model.name}: too little for two requests of max_model_len {options.max_model_len}"
        )
    # A round figure, so that a resumed calibration finds the same.
    most = min(wanted, 1 << (room.bit_length() - 1))
    return Limits(options.max_num_batched_tokens, options.max_num_seqs, options.max_model_len, most)


def _cache(decoder: Decoder, limits: Limits, options: BenchOptions) -> PagedKVCache:
    # One more block a piece, for the part of it that is not filled.
    num_blocks = limits.max_context_tokens // options.block_size + 2 * limits.max_num_seqs + 2
    longest = 2 * limits.max_model_len + limits.max_num_batched_tokens
    num_blocks = max(num_blocks, -(-longest // options.block_size) + 1)
    cache = make_cache(decoder.model, num_blocks, options.block_size, decoder.device, decoder.dtype)
    cache.fill(torch.Generator(decoder.device.torch_device).manual_seed(1))
    return cache


def _held_out_batches(
    decoder: Decoder, cache: PagedKVCache, limits: Limits, options: BenchOptions, rng: Rng
) -> list[StepBatch]:
    mixes = random_mixes(rng("held-out"), limits, options.num_held_out)
    blocks = rng("held-out-blocks")
    return [
        pack(random_pieces(blocks, decoder, cache, sizes), options.block_size) for sizes in mixes
    ]


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
