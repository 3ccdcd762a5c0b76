"""What contexts of unlike length cost: the share of a profile's `decode_skew`, from timings.

A batch whose contexts differ takes longer than one of equal contexts with the same sum: kernels
wait for the longest. Its time lies a share of the way from the time at the mean context to the
time if all were as long as the longest. The share falls with the number of requests (more of them
fill the device meanwhile), so it is a line over that number. Kernels that cut a long context into
parts have shares of a few percent; those that don't, which run batches with chunks, up to 1. Of
vLLM 0.19's FlashAttention on an RTX PRO 6000 (skew.csv of LLMServingSim's profiles): 0.02 for 256
decodes alone, one of them four times as long as the others, which is 6 % of their attention; beside
chunks 0.98 for 2 decodes, 0.4 for 8, 0.1 for 32.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from calibration.bench.held_out import error_figures
from calibration.profile_tables import ShareTable

_DIGITS = 4


class SkewCase(NamedTuple):
    """One timed batch beside what equal contexts take: of its mean, and of its longest.

    Times are of the same parts of a step, in any one unit.
    """

    num_decodes: int
    time: float
    even_time: float
    longest_time: float


def fit_shares(cases: Sequence[SkewCase]) -> ShareTable | None:
    """Return the share by the number of decodes; None without cases.

    At each number the share that misses the times by the least squares of errors relative to the
    times at equal contexts (relative to the measured ones a noisy share comes out too small), kept
    within 0 and 1.
    """
    counts = sorted({case.num_decodes for case in cases})
    if not counts:
        return None
    shares = [_share([case for case in cases if case.num_decodes == count]) for count in counts]
    if len(counts) == 1:  # a line needs two points
        counts, shares = [counts[0], counts[0] + 1], [shares[0], shares[0]]
    return ShareTable("num_decodes", tuple(map(float, counts)), tuple(shares))


def skew_errors(cases: Sequence[SkewCase], shares: ShareTable | None) -> dict[str, Any]:
    """Return the errors with the shares, and the mean and bias without any correction."""
    if shares is None or not cases:
        return {"num_points": 0}
    known = [np.interp(case.num_decodes, shares.axis, shares.share) for case in cases]
    times = np.array([case.time for case in cases])
    even = np.array([case.even_time for case in cases])
    longest = np.array([case.longest_time for case in cases])
    corrected = (even + np.array(known) * (longest - even)) / times - 1.0
    without = error_figures((even / times - 1.0).tolist())
    return {
        **error_figures(corrected.tolist()),
        "uncorrected_mean": without["mean"],
        "uncorrected_bias": without["bias"],
    }


def _share(cases: Sequence[SkewCase]) -> float:
    weights = np.array([(case.longest_time - case.even_time) / case.even_time for case in cases])
    wanted = np.array([(case.time - case.even_time) / case.even_time for case in cases])
    square = float(weights @ weights)
    share = float(weights @ wanted) / square if square else 0.0
    return round(min(max(share, 0.0), 1.0), _DIGITS)
