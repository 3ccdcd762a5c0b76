"""The host's time of a step as a line over the number of its requests; needs no PyTorch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import nnls

from sim.engine import HostOverhead

_ROUNDS = 5


def fit_host_overhead(means: Sequence[tuple[int, float, int]]) -> HostOverhead:
    """Return the line through (requests, mean seconds, number of steps); never below 0.

    The least squares of errors relative to the line itself, a mean of more steps counting more:
    relative to the measured times, the line would lie below noisy ones (see
    `calibration.step_log.fit`).
    """
    if len(means) < 2:
        return HostOverhead(means[0][1] if means else 0.0)
    sizes, times, counts = np.array(means, dtype=np.float64).T
    terms = np.column_stack([np.ones_like(sizes), sizes])
    scale = times
    for _ in range(_ROUNDS):
        weights = np.sqrt(counts) / scale
        line, _ = nnls(terms * weights[:, None], times * weights)
        scale = terms @ line
    return HostOverhead(float(line[0]), float(line[1]))
