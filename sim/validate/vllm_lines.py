"""A comparison with a real engine in words and tables."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sim.validate.load_study import NUM_SIMULATED, Machine, StatisticError, StepErrors
from sim.validate.vllm_study import VllmComparison
from sim.wording import number_of

_MS = 1e3


def machine_lines(machine: Machine, version: str, num_cores: int) -> list[str]:
    """What the engine is, and how well its step log is described."""
    fit, host = machine.profile.fit, machine.host
    held_out = fit["held_out"]
    lines = [
        f"vLLM {version} on {machine.profile.provenance.device}, {machine.model.name}"
        f" {machine.model.dtype}, one thread; the engine's client on"
        f" {'another core' if num_cores > 1 else 'the same core'}",
        f"step times: {fit['steps']} logged steps of random bursts, {fit['lost_share']:+.1%} for"
        " interruptions; host time of a step"
        f" {_MS * host.per_step_s:.3f} ms and {_MS * host.per_request_s:.4f} ms a request",
        f"{'held-out steps':36}{'steps':>8}{'MAPE':>8}{'bias':>8}",
    ]
    for name, row in {"all": held_out["all"], **held_out["by_region"]}.items():
        lines.append(f"{name:36}{row['num_points']:>8}{row['mean']:>8.1%}{row['bias']:>+8.1%}")
    return lines


def comparison_lines(comparison: VllmComparison, repeats: int) -> list[str]:
    """One load: its errors, then what they are made of."""
    load = comparison.load
    executed, predicted = comparison.num_preemptions
    outputs = load.trace.num_output_tokens
    return [
        "",
        f"{load.name}: {len(load.trace)} requests, prompts of {_mean(load.trace.num_prompt_tokens)}"
        f" and outputs of {_mean(outputs)} tokens in the mean, {number_of(repeats, 'run')};"
        f" preemptions {executed:.1f} executed, {predicted:.1f} simulated; steps scatter by"
        f" {comparison.steps.scatter}: so do those of {NUM_SIMULATED} simulations",
        f"{'':12}{'vLLM':>12}{'simulated':>12}{'error':>9}{'run to run':>12}{'simulated':>12}"
        f"{'in engine':>12}",
        *_statistic_lines(comparison),
        *_step_lines(comparison.steps),
        *_made_of_lines(comparison),
    ]


def _statistic_lines(comparison: VllmComparison) -> list[str]:
    """`in engine`: the error against what happened in the engine's own process."""
    return [
        f"{seen.metric + ' ' + seen.statistic:12}{_MS * seen.measured_s:>9.1f} ms"
        f"{_MS * seen.predicted_s:>9.1f} ms{seen.error:>+9.1%}"
        f"{'-' if np.isnan(seen.noise) else format(seen.noise, '.1%'):>12}"
        f"{seen.predicted_noise:>12.1%}{inside.error:>+12.1%}"
        for seen, inside in zip(comparison.client, comparison.engine, strict=True)
    ]


def _step_lines(steps: StepErrors) -> list[str]:
    lines = [f"{'steps':36}{'steps':>8}{'MAPE':>8}{'bias':>8}{'of time':>9}"]
    for name in ("all", *sorted(set(steps.kinds))):
        own = steps.of_kind(name) if name != "all" else steps
        share = own.measured_s.sum() / steps.measured_s.sum()
        lines.append(
            f"{name:36}{len(own.measured_s):>8}{own.mape:>8.1%}{own.bias:>+8.1%}{share:>9.1%}"
        )
    return lines


def _made_of_lines(comparison: VllmComparison) -> list[str]:
    host, simulated_host = comparison.host_s
    mean_step_s = float(np.mean(comparison.steps.measured_s))
    ttft = _find(comparison.client, "TTFT", "mean").measured_s
    lines = [
        "what the difference is made of:",
        f"  step times: {comparison.steps.total_error:+.1%} over all steps; at the pace of these"
        f" runs the errors in the engine were {_means(comparison.at_pace)}",
        f"  host time: {_MS * simulated_host:.2f} ms a step simulated,"
        f" {_MS * host:.2f} ms measured; that is {(simulated_host - host) / mean_step_s:+.1%} of"
        " a step",
    ]
    total_s = sum(float(np.mean(values)) for values in comparison.delays.values())
    ways = ", ".join(
        f"{name} {_MS * float(np.mean(values)):.2f} ms (p99"
        f" {_MS * float(np.percentile(values, 99)):.2f})"
        for name, values in comparison.delays.items()
    )
    lines.append(f"  not simulated: {ways}; {total_s / ttft:.1%} of the mean TTFT together")
    return lines


def _means(statistics: Sequence[StatisticError]) -> str:
    return ", ".join(
        f"{item.metric} {item.error:+.1%}" for item in statistics if item.statistic == "mean"
    )


def _find(statistics: Sequence[StatisticError], metric: str, statistic: str) -> StatisticError:
    return next(s for s in statistics if (s.metric, s.statistic) == (metric, statistic))


def _mean(counts: np.typing.NDArray[np.int64]) -> str:
    return f"{float(np.mean(counts)):.0f}"
