"""Counts of requests by state and reason, of preemptions, and of prefix-cache hits."""

from collections import Counter
from typing import Any

import numpy as np

from sim.metrics.throughput import share
from sim.run_result import STATES, Columns


def request_counts(requests: Columns) -> dict[str, Any]:
    """Requests that arrived, by the state they ended in, and by reason within each state."""
    state = requests["state"]
    by_state = {f"{name}_requests": int((state == name).sum()) for name in STATES}
    reasons = {name: _by_value(requests["reason"][state == name]) for name in STATES}
    return {
        "arrived_requests": len(state),
        **by_state,
        "requests_by_reason": {name: counts for name, counts in reasons.items() if counts},
    }


def preemption_counts(requests: Columns) -> dict[str, int]:
    """Preemptions, the progress they threw away, and what of it must be computed again.

    A preempted request loses its progress; when it is admitted again, a prefix hit gives a part
    back. So the tokens to recompute = tokens lost - tokens hit at readmission. It is the net sum
    over all requests: where others have meanwhile cached more of a prompt than its owner had
    computed, a readmission saves more than the preemption cost.
    """
    lost = int(requests["num_preempted_tokens"].sum())
    given_back = int(requests["num_readmission_cached_tokens"].sum())
    return {
        "preemptions": int(requests["num_preemptions"].sum()),
        "preempted_requests": int((requests["num_preemptions"] > 0).sum()),
        "lost_tokens": lost,
        "readmission_hit_tokens": given_back,
        "recomputed_tokens": lost - given_back,
    }


def speculative_counts(requests: Columns) -> dict[str, float | int | None] | None:
    """Drafts verified and accepted; None for a run without drafts.

    `mean_accepted_length` counts the token that a step always gives (vLLM's mean acceptance
    length): 1 + accepted / verifications.
    """
    if "num_draft_tokens" not in requests or not requests["num_verifications"].any():
        return None
    drafts = int(requests["num_draft_tokens"].sum())
    accepted = int(requests["num_accepted_tokens"].sum())
    verifications = int(requests["num_verifications"].sum())
    return {
        "draft_tokens": drafts,
        "accepted_tokens": accepted,
        "verifications": verifications,
        "accepted_share": share(accepted, drafts),
        "mean_accepted_length": 1 + accepted / verifications,
    }


def prefix_cache_counts(requests: Columns) -> dict[str, float | int | None]:
    """Prefix hits at first admission as a share of the prompts, and all hits as a share of work."""
    admitted = ~np.isnan(np.asarray(requests["first_scheduled_s"], dtype=np.float64))
    prompt = int(requests["num_prompt_tokens"][admitted].sum())
    first_hits = int(requests["num_cached_tokens"].sum())
    all_hits = first_hits + int(requests["num_readmission_cached_tokens"].sum())
    computed = int(requests["num_scheduled_tokens"].sum())
    return {
        "admitted_prompt_tokens": prompt,
        "hit_tokens": first_hits,
        "hit_share_of_prompt_tokens": share(first_hits, prompt),
        "hit_tokens_with_readmissions": all_hits,
        "computed_tokens": computed,
        "hit_share_of_all_tokens": share(all_hits, all_hits + computed),
    }


def _by_value(column: Any) -> dict[str, int]:
    """Not `np.unique`, which would copy the texts of many rows."""
    counts = Counter(column.tolist())
    return {str(value) or "none": counts[value] for value in sorted(counts)}
