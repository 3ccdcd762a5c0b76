"""The summary of a run as something to print in a terminal."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sim.metrics.units import slo_words, three_digits, time_unit
from sim.time_split import MEANINGS, Cause
from sim.wording import number_of

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

LATENCIES = (
    ("ttft_s", "TTFT"),
    ("tpot_s", "TPOT, a request"),
    ("itl_s", "ITL, pooled"),
    ("e2e_s", "E2E"),
    ("queue_time_s", "Queue time"),
)
_COLUMNS = ("mean", "p50", "p90", "p95", "p99", "max")
_ABSENT = "-"

Row = tuple[str, str]


def render_summary(summary: Mapping[str, Any]) -> "Group":
    """The table of a run: latencies above, all else below, warnings last; print with rich.

    Takes what `sim.metrics.summarise` gives, or what `summary.json` holds.
    """
    from rich.console import Group  # noqa: PLC0415 -- only the terminal needs rich

    parts = [_latency_table(summary), _facts_table(fact_rows(summary))]
    return Group(*parts, *_notices(summary["run"], summary["steady_window"]))


def fact_rows(summary: Mapping[str, Any]) -> list[tuple[str, list[Row]]]:
    """All but the latencies, as (heading, [(name, value), ...]), in the order of the table."""
    sections = [
        ("Load", _load_rows(summary["run"]["load"])),
        ("Requests", _request_rows(summary["requests"])),
        ("Lengths", _length_rows(summary["lengths"])),
        ("Throughput", _throughput_rows(summary["throughput"], summary["steady_window"])),
        ("Goodput", _goodput_rows(summary["goodput"])),
        ("Steps", _step_rows(summary["steps"])),
        ("Preemption", _preemption_rows(summary["preemption"])),
        ("Drafts", _speculative_rows(summary.get("speculative"))),
        ("Prefix cache", _prefix_rows(summary["prefix_cache"])),
        ("KV cache", _kv_rows(summary["run"]["replicas"], summary["kv_cache"])),
        ("Where time went", _share_rows(summary.get("time_split"))),
        ("Waits", _wait_rows(summary.get("time_split"))),
        ("Replicas", _replica_rows(summary["replicas"])),
        ("Scheduler", _scheduler_rows(summary["run"]["decides_as"])),
        ("Cost model", _cost_rows(summary["run"]["cost"], summary["run"]["replicas"])),
    ]
    return [(heading, rows) for heading, rows in sections if rows]


def latency_labels(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The latencies' keys and names; with drafts a step gives several tokens at once, so that the
    gaps of pooled ITL are those between steps.
    """
    has_drafts = not summary["run"].get("one_token_per_emission", True)
    return [
        (key, "ITL, of steps" if has_drafts and key == "itl_s" else label)
        for key, label in LATENCIES
    ]


def _latency_table(summary: Mapping[str, Any]) -> "Table":
    from rich.table import Table  # noqa: PLC0415

    table = Table(title="Latency of finished requests", title_justify="left", title_style="bold")
    table.add_column("")
    for name in ("unit", *_COLUMNS, "count"):
        table.add_column(name, justify="right")
    for key, label in latency_labels(summary):
        table.add_row(label, *_latency_cells(summary["latency"][key]))
    return table


def _latency_cells(stats: Mapping[str, Any]) -> list[str]:
    unit, scale = time_unit(stats["p50"])
    values = [_ABSENT if stats[c] is None else three_digits(stats[c] * scale) for c in _COLUMNS]
    return [unit, *values, _whole(stats["count"])]


def _facts_table(sections: Iterable[tuple[str, list[Row]]]) -> "Table":
    from rich.table import Table  # noqa: PLC0415

    table = Table(show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for heading, rows in sections:
        for index, (name, value) in enumerate(rows):
            is_last = index == len(rows) - 1
            table.add_row("" if index else heading, name, value, end_section=is_last)
    return table


def _notices(run: Mapping[str, Any], steady: Mapping[str, Any] | None) -> list[Any]:
    from rich.text import Text  # noqa: PLC0415

    notices = ["PARTIAL: the run was stopped before its end"] if run["partial"] else []
    notices += [f"warning: {warning}" for warning in run["warnings"]]
    if steady is not None and steady.get("not_steady"):
        notices.append(f"not steady: {steady['not_steady']}")
    return [Text(notice, style="yellow") for notice in notices]


_LOADS = {
    "closed": "closed loop: a client's next request after its last was answered",
    "sessions": "sessions: each turn after the answer to the one before it, plus its think time",
}


def _load_rows(load: str) -> list[Row]:
    """Said where arrivals are not simply the trace's."""
    return [("sent", _LOADS[load])] if load in _LOADS else []


def _request_rows(counts: Mapping[str, Any]) -> list[Row]:
    rows = [("arrived", _whole(counts["arrived_requests"]))]
    for state in ("finished", "rejected", "aborted", "unfinished"):
        reasons = counts["requests_by_reason"].get(state, {})
        detail = ", ".join(f"{reason} {_whole(n)}" for reason, n in reasons.items())
        number = _whole(counts[f"{state}_requests"])
        rows.append(
            (state, f"{number} ({detail})" if detail not in ("", f"none {number}") else number)
        )
    return rows


def _length_rows(lengths: Mapping[str, Any]) -> list[Row]:
    return [
        ("prompt tokens", _spread(lengths["prompt_tokens"])),
        ("output tokens", _spread(lengths["output_tokens"])),
    ]


def _spread(stats: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name} {three_digits(stats[name])}" for name in ("mean", "p50", "p99", "max")
    )


def _throughput_rows(whole: Mapping[str, Any], steady: Mapping[str, Any] | None) -> list[Row]:
    rows = [("first arrival to last completion", f"{three_digits(whole['span_s'])} s")]
    rows += _rate_rows(whole, "")
    if steady is not None:
        window = f"{three_digits(steady['start_s'])} to {three_digits(steady['end_s'])} s"
        window += ", not steady" if steady.get("not_steady") else ""
        rows += [("steady window", window), *_rate_rows(steady, "  ")]
    return rows


def _rate_rows(rates: Mapping[str, Any], indent: str) -> list[Row]:
    kinds = (
        ("requests", "requests"),
        ("input_tokens", "input tokens"),
        ("output_tokens", "output tokens"),
    )
    return [
        (f"{indent}{label}", f"{three_digits(rates[f'{key}_per_s'])} /s") for key, label in kinds
    ]


def _goodput_rows(goodput: Mapping[str, Any] | None) -> list[Row]:
    if goodput is None:
        return []
    return [
        ("SLO", slo_words(goodput)),
        ("requests that meet it", f"{three_digits(goodput['good_requests_per_s'])} /s"),
        ("share of finished", _percent(goodput["good_share_of_finished"])),
        ("share of arrived", _percent(goodput["good_share_of_arrived"])),
    ]


def _step_rows(steps: Mapping[str, Any]) -> list[Row]:
    return [
        ("steps", _whole(steps["steps"])),
        (
            "mean batch",
            f"{three_digits(steps['batch_mean_tokens'])} tokens, "
            f"{three_digits(steps['batch_mean_requests'])} requests",
        ),
        ("mean step", _duration(steps["step_mean_s"])),
    ]


def _preemption_rows(preemption: Mapping[str, Any]) -> list[Row]:
    times = _whole(preemption["preemptions"])
    requests = number_of(preemption["preempted_requests"], "request")
    return [
        ("preemptions", f"{times} (of {requests})"),
        ("tokens recomputed", _whole(preemption["recomputed_tokens"])),
    ]


def _speculative_rows(speculative: Mapping[str, Any] | None) -> list[Row]:
    if speculative is None:
        return []
    drafts, share = speculative["draft_tokens"], _percent(speculative["accepted_share"])
    return [
        ("drafts accepted", f"{share} of {_whole(drafts)}"),
        ("tokens a verification", three_digits(speculative["mean_accepted_length"])),
    ]


def _prefix_rows(prefix: Mapping[str, Any]) -> list[Row]:
    first, every = prefix["hit_tokens"], prefix["hit_tokens_with_readmissions"]
    of_prompts = _percent(prefix["hit_share_of_prompt_tokens"])
    of_all = _percent(prefix["hit_share_of_all_tokens"])
    return [
        ("hits at first admission", f"{_whole(first)} tokens, {of_prompts} of the prompts"),
        ("with readmissions", f"{_whole(every)} tokens, {of_all} of all tokens needed"),
    ]


def _kv_rows(replicas: Sequence[Mapping[str, Any]], kv: Mapping[str, Any]) -> list[Row]:
    kinds = sorted(
        {(r["num_gpu_blocks"], r["block_size"], r["num_gpu_blocks_origin"]) for r in replicas}
    )
    rows = [
        ("blocks a replica", f"{_whole(blocks)} of {size} tokens, {origin}")
        for blocks, size, origin in kinds
    ]
    mean, busy = _percent(kv["usage_mean_share"]), _percent(kv["usage_mean_busy_share"])
    usage = f"mean {mean} ({busy} while busy), peak {_percent(kv['usage_peak_share'])}"
    return [*rows, ("usage", usage)]


def _replica_rows(replicas: Sequence[Mapping[str, Any]], shown: int = 8) -> list[Row]:
    rows = [
        (
            f"replica {r['replica']}",
            f"busy {_percent(r['busy_share'])}, {number_of(r['requests'], 'request')}",
        )
        for r in replicas[:shown]
    ]
    left_out = len(replicas) - shown
    return [*rows, ("", f"... and {left_out} more")] if left_out > 0 else rows


def _share_rows(split: Mapping[str, Any] | None) -> list[Row]:
    if split is None:
        return []
    shares = {cause: split["shares"][cause.name.lower()] for cause in Cause}
    return [(MEANINGS[cause], _percent(value)) for cause, value in shares.items() if value]


def _wait_rows(split: Mapping[str, Any] | None) -> list[Row]:
    if split is None:
        return []
    return [
        (
            f"priority {waits['priority']}",
            f"{_percent(waits['wait_share'])} of the time of "
            f"{number_of(waits['requests'], 'request')}, mean {_duration(waits['wait_mean_s'])}, "
            f"p99 {_duration(waits['wait_p99_s'])}, max {_duration(waits['wait_max_s'])} "
            f"(request {waits['longest_wait_request_id']}), "
            f"{_whole(waits['never_scheduled_requests'])} never scheduled",
        )
        for waits in split["waits"]
    ]


def _scheduler_rows(decides_as: str) -> list[Row]:
    return [("decides as", decides_as)] if decides_as else []


def _cost_rows(cost: Mapping[str, Any], replicas: Sequence[Mapping[str, Any]]) -> list[Row]:
    has_host = any(replica["host_overhead"] for replica in replicas)
    return [
        ("model", str(cost.get("label", cost.get("kind", _ABSENT)))),
        ("host time", "as the study gives it" if has_host else "none: engine.host_overhead_s is 0"),
    ]


def _duration(seconds: float | None) -> str:
    unit, scale = time_unit(seconds)
    return _ABSENT if seconds is None else f"{three_digits(seconds * scale)} {unit}"


def _percent(share: float | None) -> str:
    return _ABSENT if share is None else f"{100 * share:.1f} %"


def _whole(number: int | None) -> str:
    return _ABSENT if number is None else f"{number:,}"
