"""Runs a resolved study to its end and hands over what happened."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import NamedTuple

from simpy.core import EmptySchedule
from simpy.events import Event

from policies import make_router
from sim.admission import TOO_LONG
from sim.cluster import Cluster
from sim.compiled import CompiledReplica
from sim.config import ClosedLoad, EngineConfig, Load, OpenLoad, ResolvedStudy, SessionLoad
from sim.config.resolved import INSTALLED_VLLM, OUR_SCHEDULER
from sim.coverage import coverage_warnings
from sim.engine import Replica
from sim.environment import ARRIVAL_RANK, LAST_S, Environment
from sim.errors import SimulationError
from sim.hand_over import MemorySink, RowSink
from sim.metrics.backlog import backlog_warnings
from sim.rng import Streams
from sim.rows import num_rows
from sim.run_result import Columns, ReplicaInfo, RunInfo, RunResult
from sim.scheduler.config import VLLM_VERSION
from sim.vllm_adapter import installed_version

_STUCK_NAMED = 5
_EVENTS_AT_ONCE = 1024  # between two looks at the rows that have gathered


class Progress(NamedTuple):
    """How far a run is."""

    simulated_s: float
    num_done: int  # finished or rejected
    num_total: int


def simulate(
    study: ResolvedStudy,
    *,
    on_progress: Callable[[Progress], bool | None] | None = None,
    sink: RowSink | None = None,
) -> RunResult:
    """Run a study in simulated time.

    The rows of the result are in memory, or where `sink` puts them: with a `FolderSink`, a run of
    any length takes little more memory than its trace.

    `on_progress` is called after every arrival and every end of a request, or, where an open load
    runs on the compiled core, after many of them; if it returns False the run stops there, and the
    result is marked partial. The same study gives the same result,
    bit for bit, wherever it runs.

    Raises `SimulationError` if requests are left and nothing can happen any more.
    """
    run = _Run(study, on_progress, MemorySink() if sink is None else sink)
    run.drive()
    return run.result()


class _Run:
    """One run from its first event to its result."""

    def __init__(
        self,
        study: ResolvedStudy,
        on_progress: Callable[[Progress], bool | None] | None,
        sink: RowSink,
    ) -> None:
        self._study = study
        self._sink = sink
        self._on_progress = on_progress
        self._num_total = _num_requests(study)
        self._stopped = False  # by the caller
        self._is_over = False
        self._env = Environment()
        if study.until_s is not None and study.until_s <= LAST_S:
            self._env.at(study.until_s, ARRIVAL_RANK).callbacks = [self._end]
        router = make_router(study.router, Streams(study.seed).rng("router"))
        self._cluster = Cluster(study, self._env, router, self._progress, sink)

    def drive(self) -> None:
        """Let events happen until none is left, the time is over, or the caller says stop.

        The stop is looked at between events, where every step's books are closed.
        """
        until_s = self._study.until_s
        if self._cluster.feed(self._study.trace, until_s):
            self._is_over |= until_s is not None and self._cluster.goes_on_after(until_s)
            return
        step = self._env.step
        try:
            while not self._is_over:
                for _ in range(_EVENTS_AT_ONCE):
                    step()
                    if self._is_over:
                        break
                self._cluster.settle()
        except EmptySchedule:
            return

    def result(self) -> RunResult:
        """What happened. Raises `SimulationError` if requests wait for nothing."""
        num_unfinished = self._cluster.close()
        if num_unfinished and not self._is_over:
            raise SimulationError(_stuck_message(self._cluster.replicas))
        requests, steps, gaps = self._sink.tables()
        stopped = _stop_warnings(
            self._study, self._cluster.num_done, num_unfinished, self._num_total
        )
        info = _run_info(
            self._study, self._cluster, requests, steps, stopped, partial=self._stopped
        )
        return RunResult(self._study.config, requests, steps, gaps, info)

    def _progress(self) -> bool:
        """Tell the caller how far it is; False if the caller says stop."""
        if self._on_progress is None:
            return True
        now_s = max(self._env.now, self._cluster.now_s)
        done = Progress(now_s, self._cluster.num_done, self._num_total)
        if self._on_progress(done) is False:
            self._stopped = self._is_over = True
        return not self._stopped

    def _end(self, _: Event) -> None:
        # Nothing left to happen: whoever is unfinished is stuck, not cut off by `until_s`.
        self._is_over = self._env.peek() < float("inf")


def _num_requests(study: ResolvedStudy) -> int:
    if isinstance(study.load, ClosedLoad):
        return min(len(study.trace), study.load.concurrency * study.load.rounds)
    return len(study.trace)


def _run_info(
    study: ResolvedStudy,
    cluster: Cluster,
    requests: Columns,
    steps: Columns,
    stopped: Sequence[str],
    *,
    partial: bool,
) -> RunInfo:
    engine = study.engine
    replica = ReplicaInfo(
        num_gpu_blocks=engine.cache.num_gpu_blocks,
        num_gpu_blocks_origin=engine.num_gpu_blocks_origin,
        block_size=engine.cache.block_size,
        max_num_seqs=engine.scheduler.max_num_seqs,
        max_num_batched_tokens=engine.scheduler.max_num_batched_tokens,
        synchronous=not engine.scheduler.async_scheduling,
        host_overhead=bool(engine.host_overhead_s or engine.host_overhead_per_request_s),
    )
    return RunInfo(
        replicas=(replica,) * study.num_replicas,
        cost=asdict(study.cost_model.provenance),
        slo=study.slo,
        partial=partial,
        one_token_per_emission=engine.drafting is None,
        load=_load_name(study.load),
        decides_as=_decides_as(engine),
        warnings=(
            *study.warnings,
            *_load_warnings(study.load, requests),
            *_refusal_warnings(study, cluster, num_rows(requests)),
            *stopped,
            *coverage_warnings(cluster.cost, steps),
        ),
    )


def _decides_as(engine: EngineConfig) -> str:
    """Whose decisions these are: a figure is that of one release of vLLM, and of no other."""
    if engine.scheduler_class == OUR_SCHEDULER:
        queues = f" with {engine.queue_policy} queues" if engine.queue_policy is not None else ""
        return f"vLLM {VLLM_VERSION}{queues}"
    release = f"vLLM {installed_version()}"
    own = engine.scheduler_class
    return release if own == INSTALLED_VLLM else f"{own} on {release}"


def _load_name(load: Load) -> str:
    return {OpenLoad: "open", ClosedLoad: "closed", SessionLoad: "sessions"}[type(load)]


def _load_warnings(load: Load, requests: Columns) -> tuple[str, ...]:
    """An open load can bring more than is served; other loads wait for answers."""
    return backlog_warnings(requests) if isinstance(load, OpenLoad) else ()


def _refusal_warnings(study: ResolvedStudy, cluster: Cluster, num_arrived: int) -> list[str]:
    """Those that are left out are the longest: without them all figures look better."""
    return [
        f"{cluster.num_refused[reason]:,} of {num_arrived:,} requests were rejected at arrival, "
        f"being {reason}, and are in no latency or throughput: {'; '.join(examples)}"
        f"{_way_out(study, reason)}"
        for reason, examples in sorted(cluster.refusals.items())
    ]


def _way_out(study: ResolvedStudy, reason: str) -> str:
    most = study.model.max_position_embeddings
    if reason != TOO_LONG or study.engine.scheduler.max_model_len >= most:
        return ""
    return f"; {study.model.name} takes engine.max_model_len up to {most}"


def _stop_warnings(
    study: ResolvedStudy, num_done: int, num_unfinished: int, num_total: int
) -> list[str]:
    """Say what the end of a run at `until_s` cuts off: the long requests are missing first."""
    num_unsent = num_total - num_done - num_unfinished
    if study.until_s is None or not (num_unfinished or num_unsent):
        return []
    return [
        f"stopped at until_s {study.until_s:g} s: {num_unfinished:,} requests are unfinished, so "
        f"latencies lack the longest ones, and {num_unsent:,} were never sent"
    ]


def _stuck_message(replicas: Sequence[Replica | CompiledReplica]) -> str:
    stuck = [phrase for replica in replicas for phrase in replica.stuck()]
    named = "; ".join(stuck[:_STUCK_NAMED])
    more = f"; and {len(stuck) - _STUCK_NAMED} more" if len(stuck) > _STUCK_NAMED else ""
    return f"nothing can happen any more, yet {len(stuck)} requests are unfinished: {named}{more}"
