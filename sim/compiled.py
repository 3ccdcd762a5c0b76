"""Replicas whose scheduler, KV cache and clock are the compiled core's (`sim/_core`).

The core decides, counts and adds up times bit for bit as `LeapReplica` does; the tests compare the
rows of whole runs. Here is what joins it to a simulation, in one of two ways:

- Where nobody waits for a request to end (open load), the core runs ahead on its own: a replica is
  brought up to an instant only when something arrives there or a router looks (`compiled_feed`).
- Where an end can cause something (closed load, sessions), a SimPy process drives all replicas up
  to the next event of the simulation or the next end, whichever comes first. One such process
  serves an environment.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

from simpy.events import Event

from calibration import CostModel, HasCompiledForm, StepShape
from sim._core import native
from sim.compiled_rows import gap_columns, request_columns, step_columns
from sim.config.resolved import EngineConfig
from sim.coverage import CoverageCount
from sim.endless import endless_preemption, max_preemptions_in_vain
from sim.engine import Steps
from sim.environment import ARRIVAL_RANK, Environment
from sim.records import Records
from sim.scheduler.config import CacheConfig
from sim.scheduler.request import RequestStatus
from sim.sim_request import SimRequest
from sim.stuck import StuckReplica

if TYPE_CHECKING:
    from sim._core._native import CoreReplica, Ending

OnEnd = Callable[[SimRequest], None]


def make_core(
    engine: EngineConfig, cost: CostModel, *, stops_at_ends: bool, replica_id: int = 0
) -> CoreReplica:
    """A core for this engine; it must be one that the core covers (`sim.config.core_options`)."""
    assert native is not None
    scheduler, cache = engine.scheduler, engine.cache
    model = cost.model if isinstance(cost, CoverageCount) else cost
    core: CoreReplica = native.CoreReplica(
        max_num_seqs=scheduler.max_num_seqs,
        token_budget=scheduler.token_budget,
        max_num_batched_tokens=scheduler.max_num_batched_tokens,
        max_model_len=scheduler.max_model_len,
        long_prefill_token_threshold=scheduler.long_prefill_token_threshold,
        is_priority=scheduler.policy == "priority",
        enable_chunked_prefill=scheduler.enable_chunked_prefill,
        scheduler_reserve_full_isl=scheduler.scheduler_reserve_full_isl,
        async_scheduling=scheduler.async_scheduling,
        num_usable_blocks=cache.num_usable_blocks,
        block_size=cache.block_size,
        watermark_blocks=int(scheduler.watermark * cache.num_gpu_blocks),
        enable_prefix_caching=cache.enable_prefix_caching,
        host_per_step_s=engine.host_overhead_s,
        host_per_request_s=engine.host_overhead_per_request_s,
        stops_at_ends=stops_at_ends,
        cost=cost,
        cost_form=_form(model),
        shape_type=StepShape,
        # Steps with chunks that lie beyond a model's range are counted where it is asked.
        chunks_in_python=isinstance(cost, CoverageCount),
        max_preempted_in_vain=max_preemptions_in_vain(scheduler),
        on_endless=partial(_raise_endless, engine, replica_id),
    )
    return core


def _raise_endless(engine: EngineConfig, replica_id: int, now_s: float, since_s: float) -> None:
    raise endless_preemption(engine.scheduler, engine.cache, replica_id, now_s, since_s)


def _form(model: CostModel) -> dict[str, Any] | None:
    """A model's formula as numbers; None where only its own code knows it.

    A subclass that changes the times without giving a form of its own has none.
    """
    if not isinstance(model, HasCompiledForm):
        return None
    names = ("compiled_form", "step_time_s", "decode_times_s")
    owners = {next(k for k in type(model).__mro__ if name in vars(k)) for name in names}
    return model.compiled_form() if len(owners) == 1 else None


class CompiledReplica:
    """One replica of a fleet: what `Replica` is to a cluster."""

    def __init__(
        self, replica_id: int, core: CoreReplica, env: Environment, cache: CacheConfig
    ) -> None:
        self.replica_id = replica_id
        self.core = core
        self._cache = cache
        self.before_look: Callable[[int], None] = lambda _: None
        self.requests: dict[int, SimRequest] = {}  # not ended; only where somebody waits for ends
        self._env = env
        self._num_steps_written = 0
        self._wake: Callable[[], None] = lambda: None

    def submit(self, request: SimRequest) -> None:
        """Hand a request to the engine, at this instant; the next schedule sees it."""
        self.requests[request.row_id] = request
        self.core.submit(
            self._env.now,
            request.row_id,
            request.arrival_time,
            request.priority,
            request.num_prompt_tokens,
            request.max_tokens,
            request.prompt or None,
        )
        self._wake()

    def call_when_submitted(self, wake: Callable[[], None]) -> None:
        """Call back with every request that comes."""
        self._wake = wake

    def look(self) -> CoreReplica:
        """The core as it stands at this instant."""
        self.before_look(self.replica_id)
        return self.core

    def end(self, ending: Ending) -> SimRequest:
        """Write on a request what became of it."""
        request_id, reason, num_output_tokens, num_preemptions, *instants = ending
        request = self.requests.pop(request_id)
        request.status = RequestStatus(reason)
        request.num_output_tokens = num_output_tokens
        request.num_preemptions = num_preemptions
        request.first_scheduled_s, request.first_token_s, request.last_token_s = instants
        return request

    def stuck(self) -> list[str]:
        """One phrase a request that has not ended, and why it can't go on."""
        core = self.core
        here = StuckReplica(
            self.replica_id,
            self._cache,
            core.num_free_blocks,
            core.num_running,
            core.num_waiting,
        )
        return [here.phrase(*request) for request in core.unfinished()]

    def write_rows(self, records: Records) -> None:
        """Hand over the rows since the last time."""
        replica, core = self.replica_id, self.core
        steps = step_columns(replica, self._num_steps_written, core.take_steps())
        self._num_steps_written += len(steps["step"])
        records.requests.extend(request_columns(replica, core.take_requests()))
        records.steps.extend(steps)
        records.gaps.extend(gap_columns(replica, core.take_gaps()))


class CompiledReplicaView:
    """A `policies.ReplicaView` that reads the core when asked."""

    __slots__ = ("__replica", "replica_id")

    def __init__(self, replica: CompiledReplica) -> None:
        self.replica_id = replica.replica_id
        self.__replica = replica

    @property
    def num_running(self) -> int:
        """Requests in the running queue."""
        return self.__replica.look().num_running

    @property
    def num_waiting(self) -> int:
        """Requests that wait there, never started or preempted."""
        return self.__replica.look().num_waiting

    @property
    def num_outstanding_requests(self) -> int:
        """Requests sent there that have not ended."""
        return self.__replica.look().num_requests

    @property
    def num_outstanding_tokens(self) -> int:
        """Prompt and output tokens known of requests that have not ended."""
        return self.__replica.look().num_known_tokens


class CompiledFleet:
    """All replicas of a run. With `on_end` it drives them itself, and calls it at every end.

    Without, `compiled_feed.OpenFeed` does the driving.
    """

    def __init__(
        self,
        env: Environment,
        engine: EngineConfig,
        cost: CostModel,
        num_replicas: int,
        on_end: OnEnd | None,
    ) -> None:
        self.env = env

        def make_replica(index: int) -> CompiledReplica:
            core = make_core(engine, cost, stops_at_ends=on_end is not None, replica_id=index)
            return CompiledReplica(index, core, env, engine.cache)

        self.replicas = tuple(map(make_replica, range(num_replicas)))
        self.cores = tuple(replica.core for replica in self.replicas)
        # What the model counts it counts in the order of time, also over several replicas.
        self.is_ordered = isinstance(cost, CoverageCount)
        self._on_end = on_end
        self._idle: Event | None = None
        if on_end is not None:
            for replica in self.replicas:
                replica.call_when_submitted(self._wake)
            env.process(self._drive(on_end))

    @property
    def num_ended(self) -> int:
        """Requests that finished so far."""
        return sum(core.num_ended for core in self.cores)

    @property
    def num_steps(self) -> int:
        """Steps so far."""
        return sum(core.num_steps for core in self.cores)

    def advance(self, until_s: float) -> None:
        """Let everything happen that happens before `until_s`."""
        assert native is not None
        if self.is_ordered and len(self.cores) > 1:
            native.advance_all(self.cores, until_s)
            return
        for core in self.cores:
            core.advance(until_s)

    def close(self, records: Records) -> int:
        """Stop here and hand over all rows; returns how many requests are unfinished."""
        num_unfinished = sum(core.finish() for core in self.cores)
        self.write_rows(records)
        return num_unfinished

    def write_rows(self, records: Records) -> None:
        """Hand over the rows since the last time."""
        for replica in self.replicas:
            replica.write_rows(records)

    def _drive(self, on_end: OnEnd) -> Steps:
        """Take turns up to the next event of anybody else, or to the next end.

        Before that event nobody can send anything, so what the replicas do until then is settled.
        What happens at its instant comes after it, as the replicas' ranks do.
        """
        assert native is not None
        env = self.env
        while True:
            horizon_s = env.peek()
            end = native.advance_all(self.cores, horizon_s)
            if end is not None:
                place, at_s, endings = end
                replica = self.replicas[place]
                if at_s > env.now:
                    yield env.at(at_s, ARRIVAL_RANK + 1 + place)
                for ending in endings:
                    on_end(replica.end(ending))
            elif horizon_s < inf:
                yield env.at(horizon_s, ARRIVAL_RANK + 1)
            else:
                self._idle = env.event()
                yield self._idle

    def _wake(self) -> None:
        if self._idle is not None:
            idle, self._idle = self._idle, None
            self.env.trigger(idle, ARRIVAL_RANK + 1)
