"""The fit: coefficients of 0 or more with the least relative error, then a profile's tables.

Errors are relative to the fit, not to the measured time. Where steps of one shape scatter by s,
the second would give the quick ones more weight, and a fit that lies 2 s^2 below their mean: 5 %
for the 16 % by which steps of a small engine on a shared machine scatter.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import nnls

from calibration.cost_model import FloatArray
from calibration.errors import CalibrationError
from calibration.profile_cost import ProfileCost
from calibration.profile_format import Profile, ProfileProvenance
from calibration.profile_tables import CurveTable, GridTable
from calibration.step_log.terms import PROPORTIONAL, choose_knots, chunk_pairs, matrix
from calibration.step_shape import StepShape

_US = 1e6
_LEAST_US = 1e-3  # a table holds times above 0
_MIN_STEPS = 100
_CLIPPED_AT = 3.0
_NORMAL_MAD = 1.4826  # median absolute deviation to standard deviation
_ROUNDS = 6  # the weights settle in 3 or 4
_ROWS_BETWEEN = 16  # rows of the chunk table, which is a parabola over new tokens


class TimedStep(NamedTuple):
    """One logged step, in seconds."""

    shape: StepShape
    time_s: float


def fit_profile(steps: Sequence[TimedStep], provenance: ProfileProvenance) -> Profile:
    """Return the profile of logged steps, without its `fit`.

    Raises:
        CalibrationError: too few steps, none of decodes alone, none with a chunk, or all of one
            token count.
    """
    _check(steps)
    knots = choose_knots([step.shape.num_tokens for step in steps])
    coefficients = _solve(steps, knots)
    dense, rest = (
        coefficients[: len(knots)],
        dict(zip(PROPORTIONAL, coefficients[len(knots) :].tolist(), strict=True)),
    )
    shapes = [step.shape for step in steps]
    return Profile(
        provenance=provenance,
        dense=CurveTable("num_tokens", tuple(map(float, knots)), _us(dense.tolist())),
        logits=_logits(rest, shapes),
        prefill_attention=_chunks(rest, shapes),
        decode_attention=_decodes(rest, shapes),
        max_decode_context_tokens=float(max(shape.decode_context_tokens for shape in shapes)),
    )


def lost_share(steps: Sequence[TimedStep], profile: Profile) -> float:
    """Return how much longer steps took in all than with their times clipped, as a share.

    Interruptions, in the main: the profile leaves them out, and a request in service waits for
    them. The tail of ordinary scatter is 0.1 % of it (steps that scatter by 20 %).
    """
    cost = ProfileCost(profile)
    measured = np.array([step.time_s for step in steps])
    fitted = np.array([cost.step_time_s(step.shape) for step in steps])
    return float(measured.sum() / _clipped(measured, fitted).sum()) - 1.0


def _check(steps: Sequence[TimedStep]) -> None:
    if len(steps) < _MIN_STEPS:
        raise CalibrationError(
            f"{len(steps)} steps were logged; a profile needs at least {_MIN_STEPS}"
        )
    shapes = [step.shape for step in steps]
    if not any(shape.chunks for shape in shapes):
        raise CalibrationError("no logged step computes a chunk of a prompt")
    if not any(shape.num_decodes for shape in shapes):
        raise CalibrationError("no logged step decodes")
    if len({shape.num_tokens for shape in shapes}) < 2:
        raise CalibrationError("all logged steps have one and the same number of tokens")
    for step in steps:
        if not step.time_s > 0:
            raise CalibrationError(f"a logged step took {step.time_s} s; a time is above 0")


def _solve(steps: Sequence[TimedStep], knots: Sequence[int]) -> FloatArray:
    """Least squares of relative errors; times far off the fit are clipped, and it is repeated."""
    terms = matrix([step.shape for step in steps], knots)
    measured = np.array([step.time_s for step in steps])
    times = scale = measured
    for _ in range(_ROUNDS):
        found, _ = nnls(terms / scale[:, None], times / scale)
        scale = np.maximum(terms @ found, _LEAST_US / _US)
        times = _clipped(measured, scale)
    return np.asarray(found, dtype=np.float64)


def _clipped(measured: FloatArray, fitted: FloatArray) -> FloatArray:
    off = measured / fitted - 1.0
    middle = float(np.median(off))
    scatter = _NORMAL_MAD * float(np.median(np.abs(off - middle)))
    bound = _CLIPPED_AT * max(scatter, 1e-9)
    return np.asarray(fitted * (1.0 + np.clip(off, middle - bound, middle + bound)))


def _logits(rest: dict[str, float], shapes: Sequence[StepShape]) -> CurveTable:
    counts = (1.0, float(max(2, *(shape.num_logits for shape in shapes))))
    return CurveTable("num_logits", counts, _us([rest["a logit row"] * n for n in counts]))


def _chunks(rest: dict[str, float], shapes: Sequence[StepShape]) -> GridTable:
    chunks = [chunk for shape in shapes for chunk in shape.chunks]
    rows = _rows(max(new for new, _ in chunks))
    columns = (0, max(1, *(computed for _, computed in chunks)))

    def time_s(new: int, computed: int) -> float:
        earlier, own = chunk_pairs(new, computed)
        return (
            rest["a chunk"]
            + rest["a token pair with earlier context"] * earlier
            + rest["a token pair in a chunk"] * own
        )

    return GridTable(
        "new_tokens",
        "computed_tokens",
        tuple(map(float, rows)),
        tuple(map(float, columns)),
        tuple(_us([time_s(new, computed) for computed in columns]) for new in rows),
    )


def _decodes(rest: dict[str, float], shapes: Sequence[StepShape]) -> GridTable:
    decoding = [shape for shape in shapes if shape.num_decodes]
    rows = (1, max(2, *(shape.num_decodes for shape in decoding)))
    longest = max(shape.decode_context_tokens / shape.num_decodes for shape in decoding)
    columns = (1.0, max(2.0, longest))
    each, entry = rest["a decode"], rest["a KV entry of a decode"]
    return GridTable(
        "num_decodes",
        "mean_context",
        tuple(map(float, rows)),
        columns,
        tuple(_us([count * (each + entry * mean) for mean in columns]) for count in rows),
    )


def _rows(most: int) -> list[int]:
    """New tokens from 2 to `most`, so close that lines between them follow the parabola."""
    most = max(most, 3)
    small = [n for n in (2, 4, 8) if n < most]
    return [*small, *range(_ROWS_BETWEEN, most, _ROWS_BETWEEN), most]


def _us(times_s: Sequence[float]) -> tuple[float, ...]:
    return tuple(max(time_s * _US, _LEAST_US) for time_s in times_s)
