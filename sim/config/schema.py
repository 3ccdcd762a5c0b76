"""The study file: every key, its type, its range and its default.

Strict on purpose: an unknown key, a number given as text or a NaN is an error, never a default.
Engine keys are vLLM's own flag names. A key whose default is None takes its value from the model
and the GPU when the study is resolved.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Count = Annotated[int, Field(ge=1)]
Natural = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Integer64 = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Natural64 = Annotated[int, Field(ge=0, lt=2**63)]
Text = Annotated[str, Field(min_length=1)]
Replicas = Annotated[int, Field(ge=1, le=10_000)]
"""More than 10,000 take minutes before anything is simulated, and are nobody's cluster."""
PositiveShare = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]


class Section(BaseModel):
    """A mapping of the study file."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class SpeculativeSection(Section):
    """vLLM's `speculative_config`, and what becomes of the drafts: exactly one of three.

    `acceptance_rate` is one chance for every position (given that all before it were accepted),
    `acceptance_rates` one a position, `accepted_lengths` a recording of accepted drafts a step.
    `proposal_rate` is the chance that the drafter finds drafts after a step (n-gram lookups often
    do not). `draft_step_s` is the device time of drafting, added to every step that samples.
    """

    method: Text
    num_speculative_tokens: Count
    parallel_drafting: bool = False
    acceptance_rate: Share | None = None
    acceptance_rates: Annotated[list[Share], Field(min_length=1)] | None = None
    accepted_lengths: Annotated[list[Natural], Field(min_length=1)] | None = None
    proposal_rate: Share = 1.0
    draft_step_s: NotNegative = 0.0


class EngineSection(Section):
    """Options of each replica's engine, under vLLM's names.

    `num_gpu_blocks` is the KV pool as vLLM's log states it (vLLM's flag to force it is
    `num_gpu_blocks_override`). `async_scheduling` decides the next step while the device runs
    this one; on as in vLLM, except with drafts that it cannot go with. `host_overhead_s` and
    `host_overhead_per_request_s` are the CPU time of a step, fixed and for each scheduled
    request. `enable_expert_parallel` puts whole experts on the GPUs of the tensor-parallel group
    in place of a share of each. `scheduler` decides: `headway` (ours), `vllm` (the installed vLLM's
    own) or a class with its interface as `module:Class`; with the latter two `leap` has no effect.
    `scheduling_policy` is vLLM's `fcfs` or `priority`, or a queue policy of ours or one's own, made
    with `policy_options`; `predicted_length_error` is the relative error of the output lengths
    that such a policy is told. `explain` splits the time of every request by cause. `core` is what
    runs the steps: `compiled` (much quicker), `python` (the reference that it follows bit for bit)
    or `auto`, the compiled one where it is installed and covers the study.
    """

    max_model_len: Count | None = None
    max_num_seqs: Count | None = None
    max_num_batched_tokens: Count | None = None
    max_num_scheduled_tokens: Count | None = None
    scheduling_policy: Text = "fcfs"
    policy_options: dict[str, Any] = {}
    predicted_length_error: Annotated[float, Field(ge=0, le=1000, allow_inf_nan=False)] = 0.0
    enable_chunked_prefill: bool = True
    enable_prefix_caching: bool = True
    long_prefill_token_threshold: Natural = 0
    scheduler_reserve_full_isl: bool = True
    watermark: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)] = 0.0
    async_scheduling: bool | None = None
    max_loras: Natural = 0
    speculative_config: SpeculativeSection | None = None
    block_size: Count = 16
    num_gpu_blocks: Annotated[int, Field(ge=2)] | None = None
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = 0.92
    kv_cache_dtype: Text = "auto"
    tensor_parallel_size: Count = 1
    enable_expert_parallel: bool = False
    host_overhead_s: NotNegative = 0.0
    host_overhead_per_request_s: NotNegative = 0.0
    leap: bool = True
    scheduler: Text = "headway"
    explain: bool = False
    core: Literal["auto", "python", "compiled"] = "auto"


class ConstantCostSection(Section):
    """Every step takes the same time."""

    kind: Literal["constant"]
    step_s: Positive


class LinearCostSection(Section):
    """A fixed time a step, and times in proportion to tokens, contexts and requests."""

    kind: Literal["linear"]
    base_s: NotNegative = 0.0
    per_token_s: NotNegative = 0.0
    per_context_token_s: NotNegative = 0.0
    per_logit_s: NotNegative = 0.0


class AutoCostSection(Section):
    """A shipped profile if there is one of exactly this model, GPU and parallelism, else the
    roofline; the result says which it was.
    """

    kind: Literal["auto"] = "auto"


class RooflineCostSection(Section):
    """Computed from the data sheets of model and GPU: the least time that a step can take."""

    kind: Literal["roofline"] = "roofline"
    overhead_s: NotNegative = 0.0


class ProfileCostSection(Section):
    """Interpolated from a measured profile."""

    kind: Literal["profile"]
    path: Text


CostSection = Annotated[
    AutoCostSection
    | ConstantCostSection
    | LinearCostSection
    | RooflineCostSection
    | ProfileCostSection,
    Field(discriminator="kind"),
]


class OpenLoadSection(Section):
    """Requests arrive at the trace's own times, whatever the replicas do."""

    mode: Literal["open"] = "open"


class ClosedLoadSection(Section):
    """`concurrency` clients, each with `rounds` requests one after another; without, all there are.

    Requests are taken in the trace's order; its arrival times are not used. The clients start
    evenly over `ramp_s`. After a completion a client waits `client_delay_s` plus
    `client_delay_per_prompt_token_s` times the prompt length of its next request.
    """

    mode: Literal["closed"]
    concurrency: Count
    rounds: Count | None = None
    ramp_s: NotNegative = 0.0
    client_delay_s: NotNegative = 0.0
    client_delay_per_prompt_token_s: NotNegative = 0.0


class SessionLoadSection(Section):
    """Each request of a session is sent when the one before it has ended, plus its think time.

    Sessions begin at the trace's times or, with `concurrency`, that many are open at once (for
    traces whose sessions have no common time); the first of them begin evenly over `ramp_s`.
    `think_time_s` is for follow-ups without a recorded one. `outputs_in_prompts` puts what a
    turn generated into the prompt of the next, where recorded prompts go on from each other.
    """

    mode: Literal["sessions"]
    concurrency: Count | None = None
    ramp_s: NotNegative = 0.0
    think_time_s: NotNegative | None = None
    outputs_in_prompts: bool = True


LoadSection = Annotated[
    OpenLoadSection | ClosedLoadSection | SessionLoadSection, Field(discriminator="mode")
]


class SloSection(Section):
    """Limits that a request must meet to count as goodput, in seconds."""

    ttft_s: Positive | None = None
    tpot_s: Positive | None = None
    e2e_s: Positive | None = None


class LengthsSection(Section):
    """A lognormal length in tokens; `sigma` 0, the default, makes all alike."""

    median: Positive
    sigma: NotNegative = 0.0
    lowest: Count = 1
    highest: Count | None = None


class SystemPromptsSection(Section):
    """A `share` of requests begins with one of some shared prompts, given by their lengths."""

    share: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
    num_tokens: Annotated[list[Count], Field(min_length=1)]
    zipf_exponent: NotNegative = 1.0


class GapArrivalsSection(Section):
    """Independent gaps; `cv` 1 is a Poisson process, above is burstier."""

    process: Literal["gamma", "weibull"] = "gamma"
    rate_per_s: Positive
    cv: Positive = 1.0


class PoissonArrivalsSection(Section):
    """A Poisson process."""

    process: Literal["poisson"]
    rate_per_s: Positive


class OnOffArrivalsSection(Section):
    """Poisson bursts: on and off for exponential times with means `on_s` and `off_s`."""

    process: Literal["on_off"]
    on_rate_per_s: Positive
    on_s: Positive
    off_s: Positive
    off_rate_per_s: NotNegative = 0.0


class DiurnalArrivalsSection(Section):
    """A Poisson process whose rate swings as a cosine: rate (1 + swing cos(...))."""

    process: Literal["diurnal"]
    rate_per_s: Positive
    swing: Share = 0.5
    peak_at_s: NotNegative = 43_200.0
    period_s: Positive = 86_400.0


class StageSection(Section):
    """A stretch of constant rate."""

    rate_per_s: NotNegative
    duration_s: Positive


class StagedArrivalsSection(Section):
    """Rates one after another, each stage with exactly round(rate * duration) requests."""

    process: Literal["staged"]
    stages: Annotated[list[StageSection], Field(min_length=1)]


ArrivalsSection = Annotated[
    GapArrivalsSection
    | PoissonArrivalsSection
    | OnOffArrivalsSection
    | DiurnalArrivalsSection
    | StagedArrivalsSection,
    Field(discriminator="process"),
]


class PrefixTreeSection(Section):
    """Every request takes a path of shared segments: `branching` children a level."""

    branching: Annotated[list[Count], Field(min_length=1)]
    num_tokens: Annotated[list[Count], Field(min_length=1)]
    zipf_exponent: NotNegative = 0.0


class GeneratorSection(Section):
    """Made-up requests, independent of each other.

    Arrivals: `arrivals`, or in short `rate_per_s` with `cv` (gamma gaps). Lengths: lognormal
    `prompt_tokens` and `output_tokens`, or `lengths_from` a trace file (`joint`: prompt and output
    of a request stay together). `num_requests` may be left out with staged arrivals.
    """

    num_requests: Count | None = None
    rate_per_s: Positive | None = None
    cv: Positive = 1.0
    arrivals: ArrivalsSection | None = None
    prompt_tokens: LengthsSection | None = None
    output_tokens: LengthsSection | None = None
    lengths_from: Text | None = None
    joint: bool = True
    system_prompts: SystemPromptsSection | None = None
    prefix_tree: PrefixTreeSection | None = None
    priority_weights: Annotated[dict[Integer64, NotNegative], Field(min_length=1)] | None = None
    tenant_weights: Annotated[dict[str, NotNegative], Field(min_length=1)] | None = None
    lora_weights: Annotated[dict[Natural64, NotNegative], Field(min_length=1)] | None = None


class PauseSection(Section):
    """A lognormal pause in seconds; `sigma` 0 makes all alike."""

    median_s: NotNegative
    sigma: NotNegative = 0.0


class ConversationsSection(Section):
    """Made-up sessions whose turns go on from the whole history.

    Sessions begin as `arrivals` says. A further turn holds the turn before, its output, and new
    tokens: with probability `tool_share` a tool's result (`tool_tokens`, after `tool_time`), else a
    user's (`user_tokens`, after `think_time`).
    """

    num_sessions: Count
    arrivals: ArrivalsSection
    first_tokens: LengthsSection
    output_tokens: LengthsSection
    user_tokens: LengthsSection
    think_time: PauseSection
    mean_turns: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 4.0
    system_tokens: Natural = 0
    tool_share: Share = 0.0
    tool_tokens: LengthsSection = LengthsSection(median=500.0)
    tool_time: PauseSection = PauseSection(median_s=1.0)
    max_context_tokens: Count = 131_072
    nominal_s_per_token: Positive = 0.02
    priority_weights: Annotated[dict[Integer64, NotNegative], Field(min_length=1)] | None = None
    tenant_weights: Annotated[dict[str, NotNegative], Field(min_length=1)] | None = None
    lora_weights: Annotated[dict[Natural64, NotNegative], Field(min_length=1)] | None = None


class ServeGenSection(Section):
    """Requests of the clients in a ServeGen folder from `start_s` to `end_s` of their days."""

    path: Text
    start_s: NotNegative = 0.0
    end_s: Positive
    rate_scale: Positive = 1.0


class TraceSection(Section):
    """Where requests come from: `path`, `sample: true` (shipped), or a generator.

    Generators: `generator`, `conversations`, `servegen`. Of a file (or a glob of files), `format`,
    `time_unit` and `block_size` override what is guessed from its content, and `on_bad_row: skip`
    leaves rows out that are wrong and counts them.

    Applied in this order: `window_s` keeps the arrivals between two instants, `limit` the first
    requests, `sample_sessions` a share of whole sessions, `thin` a share of the requests (a lower
    rate with the same bursts); `merge` adds the requests of other traces, `tenant` names the
    sender; `max_prompt_tokens` and `max_output_tokens` cut lengths; `priority_map`,
    `priority_weights`, `tenant_weights` label anew; `jitter_s` spreads arrivals recorded on such a
    grid; `rate_scale` compresses time by that factor; `poisson_rate_per_s` replaces the arrival
    times by a Poisson process. At the end the first arrival is at 0.
    """

    path: Text | None = None
    sample: bool = False
    generator: GeneratorSection | None = None
    conversations: ConversationsSection | None = None
    servegen: ServeGenSection | None = None
    format: Text = "auto"
    time_unit: Literal["s", "ms", "us", "ns"] | None = None
    block_size: Count | None = None
    on_bad_row: Literal["error", "skip"] = "error"
    window_s: Annotated[list[NotNegative], Field(min_length=2, max_length=2)] | None = None
    limit: Count | None = None
    sample_sessions: PositiveShare | None = None
    thin: PositiveShare | None = None
    merge: "list[TraceSection] | None" = None
    tenant: Text | None = None
    max_prompt_tokens: Count | None = None
    max_output_tokens: Count | None = None
    priority_map: Annotated[dict[Integer64, Integer64], Field(min_length=1)] | None = None
    priority_weights: Annotated[dict[Integer64, NotNegative], Field(min_length=1)] | None = None
    tenant_weights: Annotated[dict[str, NotNegative], Field(min_length=1)] | None = None
    jitter_s: Positive | None = None
    rate_scale: Positive | None = None
    poisson_rate_per_s: Positive | None = None


class StudyFile(Section):
    """A whole study file. `provenance` is written by a run, beside what it ran."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")] = "study"
    seed: Natural = 0
    trace: TraceSection
    model: Text
    hardware: Text
    replicas: Replicas = 1
    router: Text = "round-robin"
    engine: EngineSection = EngineSection()
    cost_model: CostSection = AutoCostSection()
    load: LoadSection = OpenLoadSection()
    slo: SloSection = SloSection()
    until_s: Positive | None = None
    provenance: dict[str, object] | None = None
