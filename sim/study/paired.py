"""Pairs of runs under common random numbers: the same requests and streams, two settings.

What differs between the two runs of a pair is what the settings did: the noise of arrivals and
lengths is in both and goes out of the difference.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sim.config import Override, ResolvedStudy, resolve_study
from sim.errors import StudyError
from sim.metrics import goodput, latency_columns, meets_slo, summarise
from sim.run_result import Columns, RunResult, Slo
from sim.simulation import simulate
from sim.study.executors import run_tasks
from sim.study.steady import kept_window, steadiness, trimmed
from sim.study.sweep_section import Executor, TrimSection

FloatArray = npt.NDArray[np.float64]
SAME_KEYS = ("priority", "num_prompt_tokens", "target_output_tokens")


@dataclass(frozen=True, slots=True)
class Arm:
    """One run of a pair: each request's latencies in order of arrival, and figures of the whole."""

    latencies: dict[str, FloatArray]  # NaN where the request has none
    requests: dict[str, npt.NDArray[np.int64]]
    scalars: dict[str, float | None]
    good: npt.NDArray[np.bool_] | None
    trace_sha256: str
    not_steady: tuple[str, ...]
    cost_label: str
    is_calibrated: bool
    num_not_finished: int
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Pair:
    """Two runs with one seed."""

    seed: int
    a: Arm
    b: Arm


@dataclass(frozen=True, slots=True)
class PairTask:
    """A pair to run, as it travels to a worker."""

    a: Mapping[str, Any]
    b: Mapping[str, Any]
    seed: int
    trim: TrimSection | None = None


def run_pairs(
    a: Mapping[str, Any],
    b: Mapping[str, Any],
    seeds: Sequence[int],
    *,
    trim: TrimSection | None = None,
    executor: Executor = "joblib",
    jobs: int = -1,
    on_pair: Callable[[Pair], object] | None = None,
) -> list[Pair]:
    """Run both studies with every seed; pairs in the order of the seeds.

    Seeds that give a trace which an earlier one gave too are left out: they would be no new
    observation.

    Raises:
        StudyError: the two have not the same requests, or a study is wrong.
    """
    pairs: dict[int, Pair] = {}
    tasks = [PairTask(a, b, seed, trim) for seed in seeds]
    first = run_pair(tasks[0])
    for pair in (first, *run_tasks(run_pair, _rest(tasks, first), executor, jobs)):
        pairs[pair.seed] = pair
        if on_pair is not None:
            on_pair(pair)
    ordered = [pairs[seed] for seed in seeds if seed in pairs]
    distinct = {pair.a.trace_sha256: pair for pair in reversed(ordered)}
    return [pair for pair in ordered if distinct[pair.a.trace_sha256] is pair]


def _rest(tasks: list[PairTask], first: Pair) -> list[PairTask]:
    """The other seeds; none if the second one's requests are the first one's again."""
    if len(tasks) < 2:
        return []
    second = _resolved(tasks[1].a, tasks[1].seed, "A")
    return [] if second.trace.content_sha256 == first.a.trace_sha256 else tasks[1:]


def run_pair(task: PairTask) -> Pair:
    """Run both studies with one seed.

    Raises:
        StudyError: the two have not the same requests, or a study is wrong.
    """
    a, b = _resolved(task.a, task.seed, "A"), _resolved(task.b, task.seed, "B")
    refuse_other_requests(a, b)
    return Pair(task.seed, arm_of(a, simulate(a), task.trim), arm_of(b, simulate(b), task.trim))


def refuse_other_requests(a: ResolvedStudy, b: ResolvedStudy) -> None:
    """Raise StudyError unless request i is the same in both; arrival times may differ."""
    for name in ("request_id", "priority", "num_prompt_tokens", "num_output_tokens"):
        if not np.array_equal(getattr(a.trace, name), getattr(b.trace, name)):
            raise StudyError(
                f"A and B can't be compared: their requests differ in {name} "
                f"({len(a.trace)} and {len(b.trace)} requests); give both the same trace"
            )


def arm_of(study: ResolvedStudy, result: RunResult, trim: TrimSection | None = None) -> Arm:
    """What a comparison needs of a run."""
    window = kept_window(result.requests, trim)
    kept = trimmed(result.requests, window)
    order = np.lexsort((kept["request_id"], kept["arrival_s"]))
    kept = {name: column[order] for name, column in kept.items()}
    columns = latency_columns(kept)
    finished = kept["state"] == "finished"
    return Arm(
        latencies={k: np.where(finished, v, np.nan) for k, v in columns.items()},
        requests={name: np.asarray(kept[name], np.int64) for name in ("request_id", *SAME_KEYS)},
        scalars=_scalars(result, study.slo),
        good=_good(kept, study.slo),
        trace_sha256=study.trace.content_sha256,
        not_steady=steadiness(result.requests, window).reasons,
        cost_label=str(result.info.cost.get("label", "")),
        is_calibrated=bool(result.info.cost.get("calibrated")),
        num_not_finished=int((~finished).sum()),
        warnings=result.info.warnings,
    )


def _scalars(result: RunResult, slo: Slo) -> dict[str, float | None]:
    summary = summarise(result)
    good = goodput(result.requests, slo)
    return {
        "output_tokens_per_s": summary["throughput"]["output_tokens_per_s"],
        "good_requests_per_s": None if good is None else good["good_requests_per_s"],
        "preemptions": float(summary["preemption"]["preemptions"]),
    }


def _good(requests: Columns, slo: Slo) -> npt.NDArray[np.bool_] | None:
    return None if slo == Slo() else meets_slo(requests, slo)


def _resolved(values: Mapping[str, Any], seed: int, name: str) -> ResolvedStudy:
    return resolve_study(values, name, [Override("seed", seed, f"seed {seed}")])
