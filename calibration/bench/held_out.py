"""Whole steps that the fit never sees: random mixes, and how far a profile misses them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from calibration.bench.axes import Limits
from calibration.cost_model import FloatArray
from calibration.step_shape import StepShape

Sizes = list[tuple[int, int]]
"""(new tokens, tokens computed before) of each piece, decodes first."""

_KINDS = ("decodes", "chunks", "mixed")
_SKEW_BOUNDS = (3.0, 1.5)
_FEWEST_UNLIKE = 2


class HeldOutStep(NamedTuple):
    """One whole step, timed and predicted, in seconds.

    `skew` says how unlike the contexts of its decodes are; "" if it has fewer than two.
    """

    region: str
    measured_s: float
    predicted_s: float
    skew: str = ""

    @property
    def error(self) -> float:
        """Signed relative error."""
        return self.predicted_s / self.measured_s - 1.0


def random_mixes(rng: np.random.Generator, limits: Limits, count: int) -> list[Sizes]:
    """Return steps of all kinds in turn, within what an engine of these limits would run."""
    return [_mix(rng, limits, _KINDS[i % len(_KINDS)]) for i in range(count)]


def region(shape: StepShape) -> str:
    """Return the kind of a step, and whether it is small."""
    if not shape.chunks:
        long = shape.decode_context_tokens > 256 * shape.num_decodes
        return f"decodes, mean context {'above' if long else 'up to'} 256"
    kind = "mixed" if shape.num_decodes else "chunks"
    return f"{kind}, {'above' if shape.num_tokens > 128 else 'up to'} 128 tokens"


def skew_region(shape: StepShape) -> str:
    """Return how far the longest context of the decodes lies above their mean."""
    if shape.num_decodes < _FEWEST_UNLIKE:
        return ""
    ratio = shape.decode_max_context_tokens * shape.num_decodes / shape.decode_context_tokens
    low = next((bound for bound in _SKEW_BOUNDS if ratio > bound), None)
    if low is None:
        return f"longest context up to {_SKEW_BOUNDS[-1]:g} x mean"
    return f"longest context above {low:g} x mean"


def summarise(steps: Sequence[HeldOutStep]) -> dict[str, Any]:
    """Return `error_figures` over all steps, by region, and by skew of the decodes' contexts."""
    return {
        "all": error_figures([step.error for step in steps]),
        "by_region": _by(steps, [step.region for step in steps]),
        "by_skew": _by(steps, [step.skew for step in steps]),
    }


def _by(steps: Sequence[HeldOutStep], names: Sequence[str]) -> dict[str, Any]:
    return {
        name: error_figures([s.error for s, own in zip(steps, names, strict=True) if own == name])
        for name in sorted({*names} - {""})
    }


def error_figures(errors: Sequence[float]) -> dict[str, Any]:
    """Return mean, p50, p90 of absolute relative errors (each above -1), and the bias.

    With predictions divided by 1 + bias, measured over predicted is 1 in the mean. The mean of
    errors is near it, but where single timings scatter by s it is s^2 above 0 for predictions that
    are right in the mean. A timing that was interrupted counts fully.
    """
    if not errors:
        return {"num_points": 0}
    sizes = np.abs(errors)
    return {
        "num_points": len(errors),
        "mean": _rounded(sizes.mean()),
        "p50": _rounded(np.percentile(sizes, 50)),
        "p90": _rounded(np.percentile(sizes, 90)),
        "bias": _rounded(bias(np.array(errors))),
    }


def bias(errors: FloatArray) -> float:
    """Return the signed error at which measured over predicted times have their mean."""
    return 1.0 / float(np.mean(1.0 / (1.0 + errors))) - 1.0


def _mix(rng: np.random.Generator, limits: Limits, kind: str) -> Sizes:
    sizes: Sizes = []
    budget, room = limits.max_num_batched_tokens, limits.max_context_tokens
    most = limits.max_model_len
    if kind != "chunks":
        count = _log_uniform(rng, 1, min(limits.max_num_seqs, budget))
        mean = _log_uniform(rng, 2, max(2, min(most // 2, room // (4 * count))))
        sizes += [(1, int(rng.integers(1, 2 * mean)) - 1) for _ in range(count)]
        if count > 1 and rng.integers(0, 2):  # one that is as long as any could be
            sizes[0] = (1, int(rng.integers(1, max(2, min(most, room // 2)))) - 1)
        budget -= count
        room -= sum(computed + 1 for _, computed in sizes)
    if kind != "decodes" and budget >= 2 and room >= 2:
        for _ in range(int(rng.integers(1, 3))):
            longest = min(budget, room, most)
            if longest < 2:
                break
            new = _log_uniform(rng, 2, longest)
            computed = int(rng.integers(0, 2)) * int(rng.integers(0, min(most, room) - new + 1))
            sizes.append((new, computed))
            budget -= new
            room -= new + computed
    return sizes


def _log_uniform(rng: np.random.Generator, low: int, high: int) -> int:
    return round(float(np.exp(rng.uniform(np.log(low), np.log(high)))))


def _rounded(value: float) -> float:
    return float(f"{float(value):.4g}")
