"""Nothing is lost and nothing made up: requests, tokens, and the same counts on both sides."""

import numpy as np
import numpy.typing as npt

from sim.checks.outcome import CheckOutcome, compare, none_bad
from sim.metrics import is_finished
from sim.rows import pieces
from sim.run_result import STATES, Columns, RunResult

_SIDES = ("by requests", "by steps")


def states_add_up(run: RunResult) -> CheckOutcome:
    """Arrived = finished + rejected + aborted + unfinished, and each request is there once."""
    state = run.requests["state"]
    counts = {name: int((state == name).sum()) for name in STATES}
    num_ids = len(np.unique(run.requests["request_id"]))
    ok = sum(counts.values()) == len(state) == num_ids
    listed = " + ".join(f"{count:,} {name}" for name, count in counts.items())
    detail = f"{len(state):,} arrived ({num_ids:,} ids), {listed} = {sum(counts.values()):,}"
    return CheckOutcome("requests by state add up", ok, detail)


def request_tokens(run: RunResult) -> CheckOutcome:
    """Scheduled + cached - lost = progress, for each request."""
    r = run.requests
    columns = [
        "num_scheduled_tokens",
        "num_cached_tokens",
        "num_readmission_cached_tokens",
        "num_preempted_tokens",
        "num_computed_tokens",
    ]
    gained = r[columns[0]] + r[columns[1]] + r[columns[2]]
    lost = r["num_preempted_tokens"] + _rejected_tokens(r)
    bad = gained - lost != r["num_computed_tokens"]
    return none_bad(
        "scheduled + cached - lost = progress", r, bad, "requests", ("request_id", *columns)
    )


def finished_progress(run: RunResult) -> CheckOutcome:
    """A finished request has computed all its tokens but the last: prompt + outputs - 1."""
    r = run.requests
    goal = r["num_prompt_tokens"] + r["num_output_tokens"] - 1
    bad = is_finished(r) & (r["num_computed_tokens"] != goal)
    columns = ("request_id", "num_prompt_tokens", "num_output_tokens", "num_computed_tokens")
    return none_bad("finished: progress = prompt + outputs - 1", r, bad, "requests", columns)


def output_lengths(run: RunResult) -> CheckOutcome:
    """No request has more tokens than the trace gives it, and each finished one has some."""
    r = run.requests
    outputs = r["num_output_tokens"]
    bad = (outputs > r["target_output_tokens"]) | (is_finished(r) & (outputs < 1))
    columns = ("request_id", "num_output_tokens", "target_output_tokens")
    return none_bad("outputs within their length", r, bad, "requests", columns)


def work_done(run: RunResult) -> CheckOutcome:
    """Tokens scheduled, summed over requests = tokens of all steps."""
    scheduled = int(run.requests["num_scheduled_tokens"].sum())
    return _scheduled_total(run, "work done", scheduled, "num_tokens")


def cache_hits(run: RunResult) -> CheckOutcome:
    """Prefix hits, summed over requests = hits of all steps."""
    r = run.requests
    hits = int(r["num_cached_tokens"].sum() + r["num_readmission_cached_tokens"].sum())
    return _scheduled_total(run, "prefix hits", hits, "num_cached_tokens")


def preemptions(run: RunResult) -> CheckOutcome:
    """Preemptions, summed over requests = preemptions of all steps."""
    preempted = int(run.requests["num_preemptions"].sum())
    return _scheduled_total(run, "preemptions", preempted, "num_preempted")


def outputs_emitted(run: RunResult) -> CheckOutcome:
    """Tokens that requests have = tokens that steps emitted."""
    outputs = int(run.requests["num_output_tokens"].sum())
    emitted = _sum(run.steps, "num_emitted")
    return compare("output tokens", outputs, emitted, _SIDES)


def completions(run: RunResult) -> CheckOutcome:
    """Finished requests = completions of all steps."""
    finished = int(is_finished(run.requests).sum())
    by_steps = _sum(run.steps, "num_finished")
    return compare("completions", finished, by_steps, _SIDES)


def first_tokens(run: RunResult) -> CheckOutcome:
    """Requests with a first token = first tokens of all steps: none is stamped twice."""
    started = int((~np.isnan(run.requests["first_token_s"])).sum())
    by_steps = _sum(run.steps, "num_first_tokens")
    return compare("first tokens", started, by_steps, _SIDES)


def _scheduled_total(run: RunResult, name: str, requests: int, column: str) -> CheckOutcome:
    """Compare what scheduling counts on requests with the same of the steps.

    A run that was stopped, or cut by `until_s`, has scheduled steps that have no row, since their
    results never came: its requests may be ahead of its rows, by no more than such steps can hold.
    """
    steps = _sum(run.steps, column)
    outcome = compare(name, requests, steps, _SIDES)
    in_flight = requests - steps
    # Tokens under way are taken back at `until_s`; prefix hits and preemptions are not.
    is_cut = column != "num_tokens" and bool((run.requests["state"] == "unfinished").any())
    if outcome.ok or not (run.info.partial or is_cut) or in_flight < 0:
        return outcome
    limit = sum(replica.max_num_batched_tokens for replica in run.info.replicas)
    ok = column != "num_tokens" or in_flight <= limit
    detail = f"{outcome.detail}, {in_flight:,} in the steps under way when the run was stopped"
    return CheckOutcome(name, ok, detail)


def _sum(rows: Columns, column: str) -> int:
    return sum(int(piece[column].sum()) for piece in pieces(rows, (column,)))


def _rejected_tokens(requests: Columns) -> npt.NDArray[np.int64]:
    """Draft tokens that were computed and not accepted; none where no drafts are recorded."""
    none = np.zeros(len(requests["state"]), dtype=np.int64)
    return requests.get("num_rejected_tokens", none)
