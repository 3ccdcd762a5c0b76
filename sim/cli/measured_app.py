"""The commands that deal with measurements: their options."""

from collections.abc import Callable, Mapping
from inspect import signature
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

Options = TypeVar("Options")

DeviceOption = Annotated[str, typer.Option(help="cpu, cuda or cuda:N.")]
ThreadsOption = Annotated[int, typer.Option(min=1, help="Threads of torch on the CPU.")]
MinutesOption = Annotated[float, typer.Option(help="Time to spend on measuring.")]
BatchedTokensOption = Annotated[int, typer.Option(min=2, help="Tokens of the largest step.")]
SeqsOption = Annotated[int, typer.Option(min=2, help="Requests of the largest step.")]
ModelLenOption = Annotated[int, typer.Option(min=64, help="Longest prompt and output together.")]
BlockSizeOption = Annotated[int, typer.Option(min=1, help="Tokens of a KV block.")]

SourceOption = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="SOURCE",
        help="aic: kernel tables of aiconfigurator-core; llmservingsim: layer-wise timings. "
        "Without it, this machine is measured (needs PyTorch).",
    ),
]
SystemOption = Annotated[
    str | None, typer.Option(help="GPU, in the source's name or ours: h100_sxm, h100.")
]
ModelOption = Annotated[
    str | None, typer.Option(help="Model name, or path of a config.json or its folder.")
]
ParallelOption = Annotated[int, typer.Option("--tp", help="Tensor parallel size.")]
KvDtypeOption = Annotated[str, typer.Option(help="auto, bfloat16, fp8.")]
ExpertsOption = Annotated[
    bool,
    typer.Option(
        "--enable-expert-parallel",
        help="Whole experts on each GPU (of a mixture), in place of a share of each.",
    ),
]
DataOption = Annotated[
    Path | None,
    typer.Option(help="Folder of the measurements; default: the installed aiconfigurator-core."),
]
KernelsOption = Annotated[
    Path | None,
    typer.Option(help="Kernel tables to take all-reduces from, for layer-wise timings."),
]
LinkRateOption = Annotated[
    float | None,
    typer.Option(
        help="In place of --kernels: rate of the link between GPUs without NVLink, one way."
    ),
]
LinkLatencyOption = Annotated[float, typer.Option(help="Latency of that link.")]
ProfileOption = Annotated[Path | None, typer.Option(help="Profile to write.")]
ShippedOption = Annotated[
    Path | None,
    typer.Option(help="Write the profiles that ship with Headway to this folder instead."),
]
ExecutionOption = Annotated[str, typer.Option(help="On CUDA: eager or cuda-graph.")]
KernelOption = Annotated[
    str,
    typer.Option(
        help="On CUDA: the attention kernel, by its name or a part of it; default: the quickest of"
        " those installed that is right."
    ),
]
ResumeOption = Annotated[
    bool, typer.Option("--resume", help="Go on with the samples kept beside the profile.")
]
PlotOption = Annotated[
    Path | None, typer.Option(help="Draw held-out steps, measured against predicted, here.")
]

validate_app = typer.Typer(
    help="Hold the simulator against measured systems.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


def add_measured_commands(app: typer.Typer) -> None:
    """Put the commands of this module on the command line."""
    app.command()(calibrate)
    app.add_typer(validate_app, name="validate")


def calibrate(
    source: SourceOption = None,
    system: SystemOption = None,
    model: ModelOption = None,
    tp: ParallelOption = 1,
    kv_cache_dtype: KvDtypeOption = "auto",
    enable_expert_parallel: ExpertsOption = False,
    data: DataOption = None,
    kernels: KernelsOption = None,
    link_gb_per_s: LinkRateOption = None,
    link_latency_us: LinkLatencyOption = 10.0,
    out: ProfileOption = None,
    shipped: ShippedOption = None,
    device: DeviceOption = "cpu",
    threads: ThreadsOption = 1,
    minutes: MinutesOption = 5.0,
    execution: ExecutionOption = "eager",
    max_num_batched_tokens: BatchedTokensOption = 512,
    max_num_seqs: SeqsOption = 32,
    max_model_len: ModelLenOption = 1024,
    block_size: BlockSizeOption = 16,
    kernel: KernelOption = "",
    resume: ResumeOption = False,
    plot: PlotOption = None,
) -> None:
    """Make a profile of step times: measured on this machine, or from measurements of others."""
    given = {**locals(), "num_threads": threads, "tensor_parallel_size": tp}
    if source is None:
        from sim.cli.bench_command import BenchCommand, calibrate_here

        raise typer.Exit(calibrate_here(_taken(BenchCommand, given)))
    from sim.cli.calibrate_command import CalibrateOptions, calibrate_profile

    given["expert_parallel"] = enable_expert_parallel
    given["link_bytes_per_s"] = None if link_gb_per_s is None else link_gb_per_s * 1e9
    given["link_latency_s"] = link_latency_us * 1e-6
    raise typer.Exit(calibrate_profile(_taken(CalibrateOptions, given)))


def _taken(kind: Callable[..., Options], given: Mapping[str, Any]) -> Options:
    """Make a dataclass of the options that have its fields' names."""
    return kind(**{name: given[name] for name in signature(kind).parameters})


@validate_app.command()
def silicon(
    data: Annotated[
        Path,
        typer.Option(
            help="Folder that holds measured rows (*.csv) or recorded runs, at any depth."
        ),
    ],
    study: Annotated[
        list[str] | None, typer.Option(help="Only this study; repeatable. Default: all found.")
    ] = None,
    kernels: Annotated[
        Path | None,
        typer.Option(help="Kernel tables to build profiles from; default: the shipped profiles."),
    ] = None,
    every: Annotated[int, typer.Option(min=1, help="Only each N-th row of a study.")] = 1,
    client_delay_ms: Annotated[
        float | None, typer.Option(help="The clients' fixed delay, in place of the study's.")
    ] = None,
    client_delay_us_per_token: Annotated[
        float | None, typer.Option(help="Their delay a prompt token, in place of the study's.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for tables and plots.")] = None,
) -> None:
    """Predict measured TTFT and TPOT of real GPUs, and print how far off they are."""
    from sim.cli.validate_command import SiliconOptions, validate_silicon

    options = SiliconOptions(
        data=data,
        studies=tuple(study or ()),
        kernels=kernels,
        every=every,
        client_delay_s=None if client_delay_ms is None else client_delay_ms * 1e-3,
        client_delay_per_prompt_token_s=(
            None if client_delay_us_per_token is None else client_delay_us_per_token * 1e-6
        ),
        out=out,
    )
    raise typer.Exit(validate_silicon(options))


@validate_app.command()
def vllm(
    trace: Annotated[
        list[Path], typer.Option(help="Trace to replay; repeatable: one engine serves them all.")
    ],
    python: Annotated[
        Path | None,
        typer.Option(help="A Python that has vLLM for CPUs; default: $HEADWAY_VLLM_PYTHON."),
    ] = None,
    num_requests: Annotated[
        int, typer.Option(min=2, help="First requests of each trace that are replayed.")
    ] = 100,
    shorten: Annotated[
        float, typer.Option(min=1.0, help="Lengths are divided by this, for a small model.")
    ] = 8.0,
    load: Annotated[
        float,
        typer.Option(
            min=0.05,
            max=2.0,
            help="Rate, as a share of what the engine gets through; arrivals keep their pattern.",
        ),
    ] = 0.6,
    repeats: Annotated[int, typer.Option(min=1, help="Runs of each trace.")] = 3,
    minutes: Annotated[float, typer.Option(help="Time to spend on measuring steps.")] = 2.0,
    max_num_batched_tokens: BatchedTokensOption = 512,
    max_num_seqs: SeqsOption = 32,
    max_model_len: ModelLenOption = 1024,
    block_size: Annotated[
        int, typer.Option(min=32, help="Tokens of a KV block; vLLM's CPU kernels want 32 k.")
    ] = 32,
    num_gpu_blocks: Annotated[
        int | None, typer.Option(min=2, help="KV pool; default: ample.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    out: Annotated[Path | None, typer.Option(help="Folder for profile and plots.")] = None,
) -> None:
    """Replay traces on a real vLLM engine here and in simulation, and print how far they differ."""
    given = {**locals(), "traces": tuple(trace)}
    from sim.cli.vllm_command import VllmCommand, validate_vllm
    from sim.validate.vllm_server import EngineSettings

    settings = EngineSettings(
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        max_model_len=max_model_len,
        block_size=block_size,
        num_gpu_blocks_override=num_gpu_blocks or max_num_seqs * max_model_len // block_size + 1,
    )
    raise typer.Exit(validate_vllm(_taken(VllmCommand, {**given, "settings": settings})))


@validate_app.command()
def executor(
    profile: Annotated[
        Path | None,
        typer.Option(help="Profile of this machine; default: measured now, for --minutes."),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(help="Trace to replay; default: three loads from light to KV-starved."),
    ] = None,
    num_requests: Annotated[
        int, typer.Option(min=2, help="Requests of each of the three loads.")
    ] = 100,
    repeats: Annotated[int, typer.Option(min=1, help="Runs of each load on the executor.")] = 3,
    clock: Annotated[
        str,
        typer.Option(
            help="wall; or cpu: CPU time of the thread, at the profile's pace, where others share"
            " the machine."
        ),
    ] = "wall",
    model: Annotated[str | None, typer.Option(help="Model; default: a small one.")] = None,
    device: DeviceOption = "cpu",
    threads: ThreadsOption = 1,
    minutes: MinutesOption = 5.0,
    max_num_batched_tokens: BatchedTokensOption = 512,
    max_num_seqs: SeqsOption = 32,
    max_model_len: ModelLenOption = 1024,
    block_size: BlockSizeOption = 16,
    num_gpu_blocks: Annotated[
        int | None, typer.Option(min=2, help="KV pool for --trace; default: ample.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    out: Annotated[Path | None, typer.Option(help="Folder for tables and plots.")] = None,
) -> None:
    """Replay a trace on a real model here and in simulation, and print how far they differ."""
    given = {**locals(), "num_threads": threads}
    from sim.cli.bench_command import require_torch

    require_torch()  # the next import needs it
    from sim.cli.executor_command import ExecutorCommand, validate_executor

    raise typer.Exit(validate_executor(_taken(ExecutorCommand, given)))
