"""What became of each attention kernel that was tried, in a profile and in words. No torch here."""

from collections.abc import Sequence
from typing import Any, NamedTuple


class Tried(NamedTuple):
    """What became of one kernel: its time for a layer of two batches, or why it was passed over."""

    name: str
    time_s: float | None
    problem: str = ""

    def __str__(self) -> str:
        if self.time_s is None:
            return f"{self.name}: {self.problem}"
        return f"{self.name}: {self.time_s * 1e6:.1f} us"


def describe_choice(taken: str, tried: Sequence[Tried]) -> dict[str, Any]:
    """Return what was tried, for a profile's `fit`: microseconds of a layer, or the reason."""
    return {
        "taken": taken,
        "layer_us": {
            one.name: round(one.time_s * 1e6, 2) for one in tried if one.time_s is not None
        },
        "passed_over": {one.name: one.problem for one in tried if one.time_s is None},
    }


def kernel_lines(kernels: dict[str, Any] | None) -> list[str]:
    """Return the lines for a profile's reader; none on the CPU, where there is one kernel."""
    if kernels is None:
        return []
    lines = [f"kernel {name}: {us:.1f} us a layer" for name, us in kernels["layer_us"].items()]
    lines += [f"kernel {name} passed over: {why}" for name, why in kernels["passed_over"].items()]
    if "gathered" in kernels["taken"]:
        lines.append(
            "WARNING: no paged kernel works here, so attention gathered its blocks: no serving"
            " engine is that slow. Install vllm, flashinfer or flash-attn; with torch's own kernel"
            " or flash-attn 2 alone, take --block-size 256"
        )
    return lines
