"""Experts of a layer, timed as a whole: routing, both products, activation, and the sum."""

from pathlib import Path

import numpy as np

from calibration.errors import UnmeasuredError
from calibration.experts import Experts
from calibration.kernels.curves import Curve, settled
from calibration.kernels.reading import KernelColumns, read_kernel_table

_US_PER_MS = 1e3
_KEYS = (
    "moe_dtype",
    "num_tokens",
    "hidden_size",
    "inter_size",
    "topk",
    "num_experts",
    "moe_tp_size",
    "moe_ep_size",
    "distribution",
    "kernel_source",
)
_DTYPES = {"bfloat16": ("bfloat16",), "mxfp4": ("w4a16_mxfp4",), "fp8": ("fp8_block", "fp8")}
_DISTRIBUTION = "power_law_1.2"
"""How unevenly tokens choose experts: real routers are skewed; the tables' strongest skew."""


def read_experts(file: Path) -> KernelColumns:
    """Return the table's columns.

    Raises:
        CalibrationError: the table can't be used.
    """
    return read_kernel_table(file, _KEYS)


def experts_curve(
    columns: KernelColumns,
    file: Path,
    experts: Experts,
    hidden_size: int,
    tp: int,
    *,
    expert_parallel: bool = False,
) -> Curve:
    """Return the times over the tokens of a batch on `tp` GPUs.

    Each expert is split over them, or with `expert_parallel` each has some experts whole; then
    the time is that of the GPU whose experts are chosen most. Where several kernels were timed the
    fastest counts: engines choose it.

    Raises:
        UnmeasuredError: such experts were not measured.
    """
    rows = columns["hidden_size"] == hidden_size
    rows &= columns["inter_size"] == experts.intermediate_size
    rows &= columns["topk"] == experts.experts_per_token
    rows &= columns["num_experts"] == experts.num_experts
    split, spread = (1, tp) if expert_parallel else (tp, 1)
    rows &= (columns["moe_tp_size"] == split) & (columns["moe_ep_size"] == spread)
    rows &= columns["distribution"] == _DISTRIBUTION
    rows &= np.isin(columns["moe_dtype"], _DTYPES.get(experts.weight_dtype, ()))
    tokens, place = np.unique(columns["num_tokens"][rows], return_inverse=True)
    if len(tokens) < 2:
        raise UnmeasuredError(
            f"{file}: {experts.num_experts} experts of {hidden_size} x {experts.intermediate_size}"
            f" in {experts.weight_dtype}, {experts.experts_per_token} a token, were not measured"
            f" at {'expert' if expert_parallel else 'tensor'} parallel {tp}"
        )
    least = np.full(len(tokens), np.inf)
    np.minimum.at(least, place, columns["latency"][rows] * _US_PER_MS)
    return Curve(tokens.astype(np.float64), settled(least))
