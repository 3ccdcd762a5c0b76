"""What a calibration works on: device, decoder, cache, and the plan of what to time."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch

from calibration.bench.all_reduce import time_all_reduces
from calibration.bench.attention import PagedKVCache, make_cache
from calibration.bench.axes import Limits
from calibration.bench.decoder import Decoder
from calibration.bench.device import BenchDevice, first_line, open_device
from calibration.bench.group import AllReduceTimes, message_sizes, share_of
from calibration.bench.held_out import random_mixes
from calibration.bench.plan import CalibrationPlan
from calibration.bench.sections import OPERATIONS, Sections, random_pieces
from calibration.bench.step_batch import StepBatch, pack
from calibration.bench.timing import make_timer
from calibration.errors import CalibrationError
from calibration.model_spec import ModelSpec
from calibration.profile_format import ProfileProvenance

_CACHE_SHARE = 0.5  # of the memory that is free once the weights are there
_GIB = 2**30

Rng = Callable[[str], np.random.Generator]
"""Gives the random stream of a name, from its start."""


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """What to measure and for how long.

    `kernel` names the attention kernel of CUDA to take, "" the quickest that is right. With
    `tensor_parallel_size` above 1 one GPU's share of the model is measured on `device`, and
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
    kernel: str = ""
    git_commit: str = ""
    date: str = ""


class Bench:
    """Device, decoder, cache and plan of one calibration.

    `all_reduces` are the group's, None for a group of one; `whole` is the model before it is split.
    """

    def __init__(self, options: BenchOptions, rng: Rng, all_reduces: AllReduceTimes | None) -> None:
        self.all_reduces, self.whole = all_reduces, options.model
        options = replace(options, model=share_of(options.model, options.tensor_parallel_size))
        self.options = options
        self.device = open_device(options.device, options.num_threads)
        timer = make_timer(self.device, options.execution)
        self.decoder = Decoder(
            options.model,
            self.device,
            options.block_size,
            kernel=options.kernel,
            is_captured=options.execution == "cuda-graph",
            # Tables are filled to their corners, where chunks go on from the longest context.
            num_positions=options.max_model_len + options.max_num_batched_tokens,
        )
        self.limits = _limits(options, self.device)
        self.cache = _cache(self.decoder, self.limits, options)
        batches = _held_out_batches(self.decoder, self.cache, self.limits, options, rng)
        self.shapes = [batch.shape for batch in batches]
        self.plan = CalibrationPlan(self.limits, OPERATIONS, len(batches))
        self.sections = Sections(self.decoder, self.cache, timer, rng("blocks"), batches)

    def header(self) -> dict[str, Any]:
        """What the samples are of."""
        entries = asdict(self.provenance(""))
        for changing in ("date", "git_commit", "notes"):
            del entries[changing]
        return {
            **entries,
            **asdict(self.limits),
            "block_size": self.options.block_size,
            "keeps_freed_memory": self.device.keeps_freed_memory,  # steps take no new pages then
            "decode_contexts": "equal",  # of the tables' batches; they were spread once
        }

    def provenance(self, notes: str) -> ProfileProvenance:
        """What is measured, on what."""
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
            notes="; ".join(filter(None, (f"KV blocks of {options.block_size} tokens", notes))),
        )


def open_bench(options: BenchOptions, rng: Rng) -> Bench:
    """Return what a calibration works on.

    Raises:
        CalibrationError: no such device, too little memory, a model or kernel that can't be run.
    """
    try:
        return Bench(options, rng, _time_group(options))
    except torch.OutOfMemoryError as error:
        raise CalibrationError(out_of_memory(options.device, error)) from error
    except RuntimeError as error:
        raise CalibrationError(
            f"device {options.device} failed before measuring: {first_line(error)}"
        ) from error


def out_of_memory(name: str, error: BaseException) -> str:
    """Return the sentence for it."""
    return (
        f"{name}: out of memory: {first_line(error)}; lower max_num_batched_tokens, max_num_seqs or"
        " max_model_len, or end what else is on the device"
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
