"""The host's time of a step as a line over the number of its requests; needs no PyTorch."""

from __future__ import annotations

import numpy as np

from sim.engine import HostOverhead


def fit_host_overhead(medians: list[tuple[int, float]]) -> HostOverhead:
    """Return the line through (requests, seconds), weighted by relative error; never below 0."""
    if len(medians) < 2:
        return HostOverhead(medians[0][1] if medians else 0.0)
    sizes, times = np.array(medians).T
    slope, level = np.polyfit(sizes, times, 1, w=1 / times)
    return HostOverhead(max(float(level), 0.0), max(float(slope), 0.0))
