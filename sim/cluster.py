"""Arrivals, the router and the replicas of one run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt
from simpy.events import Event

from policies import (
    ReplicaView,
    RequestSnapshot,
    Router,
    can_leap,
    check_choice,
    failed,
    make_queue_policy,
)
from sim.admission import Admission
from sim.compiled import CompiledFleet, CompiledReplica, CompiledReplicaView
from sim.compiled_feed import OpenFeed
from sim.config import ClosedLoad, OpenLoad, ResolvedStudy, SessionLoad
from sim.config.resolved import COMPILED, OUR_SCHEDULER, EngineConfig
from sim.coverage import counted
from sim.drafts import DraftModel
from sim.engine import HostOverhead, Replica
from sim.environment import ARRIVAL_RANK, Environment
from sim.hand_over import HandOver, RowSink
from sim.leap import LeapReplica
from sim.live_view import LiveReplicaView
from sim.queue_policies import PolicySchedulerFactory, predicted_lengths
from sim.records import Records
from sim.rng import Streams
from sim.scheduler.async_scheduler import create_scheduler
from sim.scheduler.leap_scheduler import create_leap_scheduler
from sim.sessions import SessionLoop
from sim.sim_request import SimRequest
from sim.time_split import TimeSplit
from sim.vllm_adapter import VllmSchedulerFactory
from traces import RequestSpec, Trace

_EXAMPLES = 3
_STEPS_AT_ONCE = 1 << 17  # rows that are handed over together, where they are while a run goes on


def _makers(engine: EngineConfig) -> tuple[type[Replica], Callable[..., Any]]:
    """What makes a replica, and what makes the scheduler in it.

    Raises `VllmAdapterError` if the scheduler is another's and cannot be imported.
    """
    if engine.scheduler_class != OUR_SCHEDULER:
        return Replica, VllmSchedulerFactory(engine.scheduler_class)
    # Drafts and adapters are decided request by request: there is nothing to leap over.
    leap = engine.leap and engine.drafting is None and not engine.scheduler.max_loras
    if engine.explain and not engine.scheduler.enable_chunked_prefill:
        leap = False  # what the next in line lacks may change within a leap
    if engine.queue_policy is not None:
        leap = leap and can_leap(make_queue_policy(engine.queue_policy, engine.policy_options))
        return LeapReplica if leap else Replica, PolicySchedulerFactory(engine, leap=leap)
    if leap:
        return LeapReplica, create_leap_scheduler
    return Replica, create_scheduler


def _predictions(study: ResolvedStudy) -> dict[int, float] | None:
    """Predicted output lengths by request id; None where nobody asks for them."""
    if study.engine.queue_policy is None:
        return None
    rng = Streams(study.seed).rng("predicted lengths")
    return predicted_lengths(study.trace, study.engine.predicted_length_error, rng)


class Cluster:
    """`study.num_replicas` equal replicas behind one router, in one environment.

    Requests reach it through `send`, or, where nothing needs events, a whole trace through `feed`.
    `on_progress` is called after every arrival and end, or after many of them; False: stop. Rows
    go to `sink`.
    """

    def __init__(
        self,
        study: ResolvedStudy,
        env: Environment,
        router: Router,
        on_progress: Callable[[], bool],
        sink: RowSink,
    ) -> None:
        self.env = env
        self.now_s = 0.0  # of a fed fleet, which needs no events
        self.records = Records(explain=study.engine.explain)
        self._hand_over = HandOver(self.records, sink, _ascending(study.trace.request_id))
        self._num_steps_handed = 0
        self._num_done = 0
        self._last_arrival_s = float(study.trace.arrival_s[-1])
        self.refusals: dict[str, list[str]] = {}  # the first few of each reason
        self.num_refused: Counter[str] = Counter()
        self._router_name = study.router
        self._router = router
        self._on_progress = on_progress
        self._on_end: Callable[[SimRequest], None] | None = None
        self._admission = Admission(study.engine.scheduler, study.engine.cache)
        self._ttft_limit_s = study.slo.ttft_s
        self._predicted = _predictions(study)
        self.cost = counted(study.cost_model)
        self.replicas: tuple[Replica | CompiledReplica, ...]
        self._views: tuple[ReplicaView, ...]
        self._fleet: CompiledFleet | None = None
        if study.engine.core == COMPILED:
            on_end = None if isinstance(study.load, OpenLoad) else self._ended
            fleet = CompiledFleet(env, study.engine, self.cost, study.num_replicas, on_end)
            self._fleet = fleet
            self.replicas = fleet.replicas
            self._views = tuple(CompiledReplicaView(replica) for replica in fleet.replicas)
        else:
            replicas = self._make_replicas(study)
            self.replicas = replicas
            self._views = tuple(LiveReplicaView(replica) for replica in replicas)
        if isinstance(study.load, ClosedLoad):
            ClosedLoop(self, study.load, study.trace)
        elif isinstance(study.load, SessionLoad):
            SessionLoop(self, study.load, study.trace)
        elif self._fleet is None:
            env.process(self._open_loop(study.trace))

    def _make_replicas(self, study: ResolvedStudy) -> tuple[Replica, ...]:
        engine = study.engine
        drafting = engine.drafting
        drafts = DraftModel(drafting, study.seed) if drafting is not None else None
        make_replica, make_scheduler = _makers(engine)
        return tuple(
            make_replica(
                self.env,
                replica_id,
                scheduler=make_scheduler(engine.scheduler, engine.cache),
                cost=self.cost,
                records=self.records,
                host=HostOverhead(engine.host_overhead_s, engine.host_overhead_per_request_s),
                drafts=drafts,
                on_end=self._ended,
                # Not the counted one: these are questions, not steps.
                explain=study.cost_model if engine.explain else None,
            )
            for replica_id in range(study.num_replicas)
        )

    @property
    def num_done(self) -> int:
        """Requests that finished or were refused."""
        is_fed = self._fleet is not None and self._on_end is None
        return self._num_done + (self._fleet.num_ended if is_fed and self._fleet else 0)

    def feed(self, trace: Trace, until_s: float | None) -> bool:
        """Run an open load to its end without events; False: it takes events."""
        if self._fleet is None or self._on_end is not None:
            return False
        route = self._route if len(self.replicas) > 1 else None
        feed = OpenFeed(
            self._fleet,
            route,
            self._refused,
            self._turn_away,
            self._fed_until,
            settled=self._settle,
        )
        feed.run(trace, until_s)
        return True

    def goes_on_after(self, until_s: float) -> bool:
        """Whether anything would have happened to a fed fleet from `until_s` on."""
        assert self._fleet is not None
        next_s = min(core.next_s for core in self._fleet.cores)
        return next_s < inf or self._last_arrival_s >= until_s

    def _fed_until(self, now_s: float) -> bool:
        self.now_s = now_s
        return self._on_progress()

    def _refused(self, trace: Trace, rows: slice) -> npt.NDArray[np.bool_]:
        return self._admission.refusals(
            trace.num_prompt_tokens[rows], trace.num_output_tokens[rows]
        )

    def _turn_away(self, trace: Trace, row: int) -> None:
        spec = trace[row]
        self._admit(_sim_request(spec, spec.arrival_s))

    def send(self, spec: RequestSpec, arrival_s: float) -> bool:
        """Send a request now; `arrival_s` is the instant on record. False: it was refused."""
        request = _sim_request(spec, arrival_s)
        self._show_to_policies(request, spec)
        if not self._admit(request):
            return False
        self._choose(request).submit(request)
        self._on_progress()
        return True

    def _show_to_policies(self, request: SimRequest, spec: RequestSpec) -> None:
        request.tenant = spec.tenant
        if self._ttft_limit_s is not None:
            request.deadline_s = request.arrival_time + self._ttft_limit_s
        if self._predicted is not None:
            request.predicted_output_tokens = self._predicted[spec.request_id]

    def when_ended(self, callback: Callable[[SimRequest], None]) -> None:
        """Call back with every request that finishes."""
        self._on_end = callback

    def settle(self) -> None:
        """Let rows go that are settled, if they are many; between two events."""
        if self._fleet is None and self._hand_over.is_early:
            self._settle(min(r.settled_before_s for r in self.replicas if isinstance(r, Replica)))
        else:
            self._settle(self.env.now)

    def _settle(self, before_s: float) -> None:
        if not self._hand_over.is_early:
            return
        if self._fleet is None:
            num_new = self.records.steps.num_rows
        else:
            num_new = self._fleet.num_steps - self._num_steps_handed
        if num_new < _STEPS_AT_ONCE:
            return
        if self._fleet is not None:
            self._fleet.write_rows(self.records)
            self._num_steps_handed += num_new
        self._hand_over.settle(before_s)

    def close(self) -> int:
        """Stop here and let all rows go; returns how many requests have not ended."""
        num_unfinished = self._record_unfinished()
        self._hand_over.finish()
        return num_unfinished

    def _record_unfinished(self) -> int:
        if self._fleet is not None:
            return self._fleet.close(self.records)
        replicas = (r for r in self.replicas if isinstance(r, Replica))
        unfinished = [(r.replica_id, q) for r in replicas for q in r.close()]
        for replica_id, request in unfinished:
            self.records.add_request(request, replica_id, "unfinished", "")
        return len(unfinished)

    def _choose(self, request: SimRequest) -> Replica | CompiledReplica:
        if len(self.replicas) == 1:
            return self.replicas[0]
        place = self._route(
            request.row_id, request.arrival_time, request.num_prompt_tokens, request.priority
        )
        return self.replicas[place]

    def _route(
        self, request_id: int, arrival_s: float, num_prompt_tokens: int, priority: int
    ) -> int:
        view = RequestSnapshot(request_id, arrival_s, num_prompt_tokens, priority)
        try:
            choice = self._router.route(view, self._views)
        except Exception as error:
            raise failed("router", self._router_name, request_id, error) from error
        return check_choice(self._router_name, choice, self._views)

    def _admit(self, request: SimRequest) -> bool:
        """Whether a replica could ever serve it; False: it is refused, and recorded so."""
        refusal = self._admission.refusal(request.num_prompt_tokens, request.max_tokens)
        if refusal is not None:
            self._refuse(request, *refusal)
        return refusal is None

    def _refuse(self, request: SimRequest, reason: str, figures: str) -> None:
        request.split = TimeSplit(request.arrival_time)
        self.records.add_request(request, -1, "rejected", reason)
        self._num_done += 1
        self.num_refused[reason] += 1
        examples = self.refusals.setdefault(reason, [])
        if len(examples) < _EXAMPLES:
            examples.append(f"request {request.row_id} {figures}")
        self._on_progress()

    def _ended(self, request: SimRequest) -> None:
        self._num_done += 1
        if self._on_end is not None:
            self._on_end(request)
        self._on_progress()

    def _open_loop(self, trace: Trace) -> Generator[Event, None, None]:
        """Send every request at the trace's own time, whatever the replicas do."""
        for spec in iterate(trace):
            if spec.arrival_s > self.env.now:
                yield self.env.at(spec.arrival_s, ARRIVAL_RANK)
            self.send(spec, spec.arrival_s)


class ClosedLoop:
    """N clients, each with one request at a time, taking requests in the trace's order."""

    def __init__(self, cluster: Cluster, load: ClosedLoad, trace: Trace) -> None:
        self._cluster = cluster
        self._load = load
        self._specs = iterate(trace)
        self._num_left = load.concurrency * load.rounds
        cluster.when_ended(self._continue)
        for client in range(load.concurrency):
            start_s = client * load.ramp_s / load.concurrency
            self._send_at(start_s, self._next())

    def _next(self) -> RequestSpec | None:
        if self._num_left <= 0:
            return None
        self._num_left -= 1
        return next(self._specs, None)

    def _continue(self, _: SimRequest) -> None:
        """A client got its answer: after its delay it sends the next request."""
        spec = self._next()
        if spec is None:
            return
        delay_s = (
            self._load.client_delay_s
            + self._load.client_delay_per_prompt_token_s * spec.num_prompt_tokens
        )
        if delay_s:
            self._send_at(self._cluster.env.now + delay_s, spec)
        else:
            self._send(spec)

    def _send_at(self, at_s: float, spec: RequestSpec | None) -> None:
        if spec is None:
            return
        event = self._cluster.env.at(at_s, ARRIVAL_RANK)
        event.callbacks = [lambda _: self._send(spec)]

    def _send(self, spec: RequestSpec | None) -> None:
        """Send a request; a client whose request is refused goes on with the next at once."""
        while spec is not None and not self._cluster.send(spec, self._cluster.env.now):
            spec = self._next()


def _sim_request(spec: RequestSpec, arrival_s: float) -> SimRequest:
    return SimRequest(
        spec.request_id,
        spec.num_prompt_tokens,
        spec.num_output_tokens,
        arrival_time=arrival_s,
        priority=spec.priority,
        prompt=spec.prompt,
        lora_id=spec.lora_id,
    )


def _ascending(ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The ids in order: themselves, nearly always."""
    return ids if bool(np.all(ids[1:] > ids[:-1])) else np.sort(ids)


def iterate(trace: Trace) -> Iterator[RequestSpec]:
    """The requests of a trace, read from its columns many at a time."""
    return iter(trace)
