"""Latencies of each request, in seconds, one value a row; NaN where there is none."""

from typing import Any

import numpy as np
import numpy.typing as npt

from sim.run_result import Columns

FloatArray = npt.NDArray[np.float64]

LATENCY_COLUMNS = ("ttft_s", "tpot_s", "e2e_s", "queue_time_s")


def is_finished(requests: Columns) -> npt.NDArray[np.bool_]:
    """Which requests finished; only these enter latency statistics."""
    return np.asarray(requests["state"] == "finished", dtype=np.bool_)


def ttft_s(requests: Columns) -> FloatArray:
    """Time to first token: first token ever - arrival; a preemption does not stamp it again."""
    return _difference(requests["first_token_s"], requests["arrival_s"])


def queue_time_s(requests: Columns) -> FloatArray:
    """Time in queue: first scheduled - arrival. Waits after a preemption are not in it."""
    return _difference(requests["first_scheduled_s"], requests["arrival_s"])


def e2e_s(requests: Columns) -> FloatArray:
    """End to end: last token - arrival; NaN unless the request finished."""
    whole = _difference(requests["last_token_s"], requests["arrival_s"])
    return np.where(is_finished(requests), whole, np.nan)


def tpot_s(requests: Columns) -> FloatArray:
    """Time per output token: (E2E - TTFT) / (output tokens - 1), a mean gap of one request.

    NaN for a request of one token, which has no gap, and unless the request finished. Other tools
    call this a request's ITL; pooled ITL (`sim.metrics.itl`) is another quantity.
    """
    num_gaps = requests["num_output_tokens"] - 1
    has_gaps = is_finished(requests) & (num_gaps > 0)
    decode_s = _difference(requests["last_token_s"], requests["first_token_s"])
    return np.where(has_gaps, decode_s / np.where(has_gaps, num_gaps, 1), np.nan)


def latency_columns(requests: Columns) -> Columns:
    """The four latencies as columns that can stand beside the request rows."""
    functions = (ttft_s, tpot_s, e2e_s, queue_time_s)
    return {f.__name__: f(requests) for f in functions}


def finished_values(requests: Columns, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The values of finished requests that have one (not NaN), in row order."""
    kept: npt.NDArray[Any] = values[is_finished(requests) & ~np.isnan(values)]
    return kept


def _difference(later: npt.NDArray[Any], earlier: npt.NDArray[Any]) -> FloatArray:
    return np.asarray(later, dtype=np.float64) - np.asarray(earlier, dtype=np.float64)
