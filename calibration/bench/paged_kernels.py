"""Paged attention kernels of CUDA, where they are installed.

Serving engines call these: vLLM's own build of FlashAttention, FlashAttention 2 and 3, FlashInfer,
and torch's varlen attention. Which is quickest depends on the GPU, so `kernel_choice` tries them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch

from calibration.bench.attention import PagedAttention
from calibration.bench.flashinfer_kernel import FlashInferAttention
from calibration.bench.table_kernels import (
    Setting,
    TableAttention,
    flash_2_kernel,
    flash_3_kernel,
    torch_kernel,
    vllm_kernel,
    vllm_scheduler,
)

_FLASH_VERSIONS = (4, 3, 2)  # of vLLM's build; which of them work depends on the GPU


class Missing(NamedTuple):
    """A package whose kernels can't be had, and why: mostly, it is not installed."""

    name: str
    problem: str


def installed_kernels(setting: Setting) -> Iterator[PagedAttention | Missing]:
    """Every kernel whose package can be imported; whether it works here is not known yet."""
    for name, kernels in _PACKAGES.items():
        try:
            yield from kernels(setting)
        except Exception as error:  # a package of another torch or CUDA fails in its own way
            yield Missing(name, f"{type(error).__name__}: {error}")


def _vllm(setting: Setting) -> Iterator[PagedAttention]:
    # Before flash_attn: vLLM puts a package of that name in the place of one not yet imported,
    # and without it has no FlashAttention 4.
    import vllm  # noqa: PLC0415 - not everybody has it
    from vllm.vllm_flash_attn import flash_attn_varlen_func, get_scheduler_metadata  # noqa: PLC0415

    def kernel(version: int, how: str = "", scheduler: bool = False) -> PagedAttention:
        return TableAttention(
            setting.device,
            f"vllm {vllm.__version__} FlashAttention {version}{how}",
            vllm_kernel(flash_attn_varlen_func, version),
            vllm_scheduler(get_scheduler_metadata, setting) if scheduler else None,
        )

    yield kernel(3, ", scheduled ahead", scheduler=True)
    for version in _FLASH_VERSIONS:
        yield kernel(version)


def _flash_3(setting: Setting) -> Iterator[PagedAttention]:
    from flash_attn_interface import flash_attn_with_kvcache  # noqa: PLC0415

    yield TableAttention(
        setting.device, "FlashAttention 3", flash_3_kernel(flash_attn_with_kvcache)
    )


def _flash_2(setting: Setting) -> Iterator[PagedAttention]:
    import flash_attn  # noqa: PLC0415
    from flash_attn import flash_attn_varlen_func  # noqa: PLC0415

    yield TableAttention(
        setting.device,
        f"flash-attn {flash_attn.__version__}",
        flash_2_kernel(flash_attn_varlen_func),
    )


def _torch(setting: Setting) -> Iterator[PagedAttention]:
    from torch.nn.attention.varlen import varlen_attn  # noqa: PLC0415 - since torch 2.10

    yield TableAttention(
        setting.device,
        f"torch {torch.__version__} varlen_attn with a block table",
        torch_kernel(varlen_attn),
    )


def _flashinfer(setting: Setting) -> Iterator[PagedAttention]:
    import flashinfer  # noqa: PLC0415

    yield FlashInferAttention(flashinfer, setting)


_PACKAGES: dict[str, Callable[[Setting], Iterator[PagedAttention]]] = {
    "vllm": _vllm,
    "flash_attn_interface": _flash_3,
    "flash_attn": _flash_2,
    "torch.nn.attention.varlen": _torch,
    "flashinfer": _flashinfer,
}
