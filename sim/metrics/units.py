"""How latencies are shown: one rule for tables and figures."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

_LONG_S = 10.0
_NO_DECIMALS = 99.95  # from here on three digits have none

_NAMES = {"ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "e2e": "E2E", "queue_time": "Queue time"}


class TimeUnit(NamedTuple):
    """A unit, and what seconds are multiplied by to be in it."""

    name: str
    scale: float


def time_unit(typical_s: float | None) -> TimeUnit:
    """Milliseconds where the typical value is below a second, else seconds."""
    is_small = typical_s is not None and typical_s < 1
    return TimeUnit("ms", 1e3) if is_small else TimeUnit("s", 1.0)


def axis_unit(values_s: npt.NDArray[np.float64]) -> TimeUnit:
    """The same for an axis: seconds too where it reaches to ten of them. NaN does not count."""
    known = values_s[np.isfinite(values_s)]
    if not len(known) or known.max() >= _LONG_S:
        return TimeUnit("s", 1.0)
    return time_unit(float(np.median(known)))


def three_digits(value: float | None) -> str:
    """Three significant digits, but never a whole number cut short: 0.0123, 1.23, 12.3, 12,345; a
    dash for none.
    """
    if value is None:
        return "-"
    if abs(value) >= _NO_DECIMALS or value == int(value):
        return f"{value:,.0f}"
    return f"{value:#.3g}"


def metric_words(metric: str) -> str:
    """A metric's key in words, without its unit: `ttft_p99_s` is "TTFT p99"."""
    name, _, stat = metric.removesuffix("_s").rpartition("_")
    if name in _NAMES:
        return f"{_NAMES[name]} {stat}"
    return metric.replace("_", " ")


def slo_words(goodput: Mapping[str, Any]) -> str:
    """The limits of a goodput section: `TTFT <= 0.1 s and TPOT <= 0.01 s`."""
    limits = {name: goodput[f"slo_{name}_s"] for name in ("ttft", "tpot", "e2e")}
    known = [
        f"{name.upper()} <= {limit:g} s" for name, limit in limits.items() if limit is not None
    ]
    return " and ".join(known)
