"""A study with nothing left open: what `sim.simulation.simulate` runs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from calibration import CostModel, GpuSpec, ModelSpec
from sim.drafts import Drafting
from sim.run_result import Slo
from sim.scheduler.config import CacheConfig, SchedulerConfig
from traces import Trace

OUR_SCHEDULER = "headway"
INSTALLED_VLLM = "vllm"
SCHEDULERS = (OUR_SCHEDULER, INSTALLED_VLLM)

GIVEN = "as given in the study"
"""Where the size of a KV pool comes from that is not estimated."""

CoreName: TypeAlias = Literal["python", "compiled"]
PYTHON: CoreName = "python"
COMPILED: CoreName = "compiled"


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """One replica's engine: the scheduler's own options, and what only the clock needs.

    `num_gpu_blocks_origin` says where the size of the KV pool comes from. The host overheads are
    seconds of CPU time between two steps: fixed, and for each scheduled request. `drafting` says
    what becomes of drafts where the scheduler asks for them.
    `scheduler_class` is ours, `vllm`, or a class with vLLM's interface as `module:Class`.
    `queue_policy` is a name for `policies.make_queue_policy`, whose order takes the place of
    `scheduler.policy`; `predicted_length_error` is the relative error of the output lengths that
    it is told. `explain` records why each request waited. `core` is what runs the replicas: the
    compiled core, or the Python that it follows bit for bit.
    """

    scheduler: SchedulerConfig
    cache: CacheConfig
    num_gpu_blocks_origin: str
    gpu_memory_utilization: float = 0.92
    kv_cache_dtype: str = "auto"
    tensor_parallel_size: int = 1
    enable_expert_parallel: bool = False
    host_overhead_s: float = 0.0
    host_overhead_per_request_s: float = 0.0
    drafting: Drafting | None = None
    leap: bool = True
    scheduler_class: str = OUR_SCHEDULER
    queue_policy: str | None = None
    policy_options: Mapping[str, Any] = field(default_factory=dict)
    predicted_length_error: float = 0.0
    explain: bool = False
    core: CoreName = PYTHON

    @property
    def num_gpu_blocks_is_given(self) -> bool:
        """Whether the study gives the size of the KV pool; else it is an estimate."""
        return self.num_gpu_blocks_origin == GIVEN


@dataclass(frozen=True, slots=True)
class OpenLoad:
    """Requests arrive at the trace's own times."""


@dataclass(frozen=True, slots=True)
class ClosedLoad:
    """`concurrency` clients with up to `rounds` requests each, taken in the trace's order.

    Client i starts at `i * ramp_s / concurrency`. After a completion a client waits
    `client_delay_s + client_delay_per_prompt_token_s * prompt tokens of its next request`.
    """

    concurrency: int
    rounds: int
    ramp_s: float = 0.0
    client_delay_s: float = 0.0
    client_delay_per_prompt_token_s: float = 0.0


@dataclass(frozen=True, slots=True)
class SessionLoad:
    """A request is sent when its parent has ended, plus its think time.

    Sessions begin at the trace's times, or, with a `concurrency`, that many are open at once and
    the first of them begin evenly over `ramp_s`. `think_time_s` is for requests without a
    recorded one.
    """

    concurrency: int | None = None
    ramp_s: float = 0.0
    think_time_s: float | None = None


Load: TypeAlias = OpenLoad | ClosedLoad | SessionLoad


@dataclass(frozen=True, slots=True)
class ResolvedStudy:
    """Everything that decides a run.

    Args:
        name: of the study; names the run folder.
        seed: of every random stream.
        trace: the requests, all transforms applied.
        cost_model: how long a step takes on the device.
        engine: of every replica; all are alike.
        router: a name for `policies.make_router`.
        load: open or closed loop.
        slo: limits that make goodput.
        until_s: simulated time at which the run stops with requests unfinished; None: never.
        config: this study as plain values, with provenance; `config.yaml` of the run folder.
        warnings: what a reader of the results should know, one sentence each.
    """

    name: str
    seed: int
    trace: Trace
    model: ModelSpec
    gpu: GpuSpec
    cost_model: CostModel
    engine: EngineConfig
    num_replicas: int = 1
    router: str = "round-robin"
    load: Load = OpenLoad()
    slo: Slo = field(default_factory=Slo)
    until_s: float | None = None
    config: Mapping[str, Any] = field(default_factory=dict, repr=False)
    warnings: tuple[str, ...] = ()
