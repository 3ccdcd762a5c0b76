"""All invariants of a run, and of a run folder."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np

from sim.checks import conservation, limits, littles_law, times, token_gaps
from sim.checks.outcome import CheckOutcome
from sim.errors import ResultError
from sim.metrics import LATENCY_COLUMNS, has_split, latency_columns, summarise
from sim.parquet import iterate_rows
from sim.result import REQUESTS, load, read_summary
from sim.run_result import RunResult

Check = Callable[[RunResult], CheckOutcome]

_ROUNDING = 1e-12
_SUMMARY_FOLLOWS = "summary follows from the rows"

EVERY_RUN: tuple[Check, ...] = (
    conservation.states_add_up,
    conservation.request_tokens,
    conservation.output_lengths,
    conservation.work_done,
    conservation.cache_hits,
    conservation.preemptions,
    conservation.outputs_emitted,
    conservation.completions,
    conservation.first_tokens,
    token_gaps.all_gaps_sum,
    token_gaps.finished_gaps_sum,
    times.request_times,
    times.times_fit_state,
    times.step_times,
    limits.blocks_within_capacity,
    limits.running_within_limit,
    limits.tokens_within_budget,
    littles_law.littles_law,
    littles_law.littles_law_sampled,
)
ONE_TOKEN_PER_EMISSION: tuple[Check, ...] = (token_gaps.gap_count, token_gaps.step_emissions)
"""A step that gives a request several tokens at once has gaps of zero, which no row records."""
EXACT_ENDS: tuple[Check, ...] = (conservation.finished_progress,)
"""An asynchronous replica may compute a step beyond a request's end before it learns of it, and
a verified draft may lie beyond it."""


def check_run(run: RunResult) -> list[CheckOutcome]:
    """Every check that applies to this run, in a fixed order."""
    checks = list(EVERY_RUN)
    if run.info.one_token_per_emission:
        checks += ONE_TOKEN_PER_EMISSION
    synchronous = all(replica.synchronous for replica in run.info.replicas)
    if synchronous and run.info.one_token_per_emission:
        checks += EXACT_ENDS
    if has_split(run.requests):
        checks.append(times.split_sums)
    return [_outcome(check.__name__.replace("_", " "), check, run) for check in checks]


def check_dir(folder: Path | str) -> list[CheckOutcome]:
    """`check_run` on a run folder, and that its figures follow from its rows.

    Raises `sim.errors.ResultError` if the folder can't be read.
    """
    run = load(folder)
    summary = _outcome(_SUMMARY_FOLLOWS, lambda run: _summary_follows(run, folder), run)
    return [*check_run(run), summary, _latencies_follow(folder)]


def _outcome(name: str, check: Check, run: RunResult) -> CheckOutcome:
    """What the check says; rows so damaged that it can't be computed fail it."""
    try:
        return check(run)
    except (ArithmeticError, IndexError, ValueError) as error:
        if isinstance(error, ResultError):
            raise
        return CheckOutcome(name, False, f"the rows contradict each other: {error}")


def _summary_follows(run: RunResult, folder: Path | str) -> CheckOutcome:
    """The saved summary = the summary of the saved rows, but for the rounding of sums.

    A later version may add up in another order.
    """
    saved, computed = _leaves(read_summary(folder)), _leaves(summarise(run))
    keys = sorted(saved.keys() | computed.keys())
    off = [key for key in keys if not _agree(saved.get(key), computed.get(key))]
    detail = f"{len(keys):,} figures, none off"
    if off:
        key = off[0]
        figures = f"saved {saved.get(key)}, from the rows {computed.get(key)}"
        detail = f"{len(off):,} of {len(keys):,} figures off; first: {key}, {figures}"
    return CheckOutcome(_SUMMARY_FOLLOWS, not off, detail)


def _agree(saved: object, computed: object) -> bool:
    if type(saved) is float and type(computed) is float:
        return math.isclose(saved, computed, rel_tol=_ROUNDING, abs_tol=0.0)
    return saved == computed


def _latencies_follow(folder: Path | str) -> CheckOutcome:
    """The saved latencies of each request = those from its saved times."""
    off: dict[str, None] = {}
    for rows in iterate_rows(Path(folder) / REQUESTS):
        for name, computed in latency_columns(rows).items():
            saved = rows.get(name, np.empty(0, object))
            if saved.dtype.kind != "f" or not np.array_equal(saved, computed, equal_nan=True):
                off[name] = None
    detail = f"off: {', '.join(off)}" if off else f"{len(LATENCY_COLUMNS)} columns, none off"
    return CheckOutcome("latencies of requests follow from their times", not off, detail)


def _leaves(value: object, path: str = "") -> dict[str, object]:
    """Every plain value of nested JSON by its dotted path."""
    if isinstance(value, dict):
        parts = [(str(key), item) for key, item in value.items()]
    elif isinstance(value, list | tuple):
        parts = [(str(index), item) for index, item in enumerate(value)]
    else:
        return {path: value}
    return {
        key: leaf
        for name, item in parts
        for key, leaf in _leaves(item, f"{path}.{name}" if path else name).items()
    }
