"""How busy each replica was, how full its KV cache, and what its steps looked like."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from sim.metrics.step_totals import StepTotals
from sim.metrics.throughput import Window, share
from sim.run_result import Columns, ReplicaInfo


def activity_span(requests: Columns, totals: StepTotals) -> Window | None:
    """From the first arrival to the end of the last step; None if no step ran."""
    if totals.last_end_s is None:
        return None
    return Window(float(requests["arrival_s"].min()), totals.last_end_s)


def step_length_s(steps: Columns) -> npt.NDArray[np.float64]:
    """Seconds from the beginning of each step on the device to its results."""
    return np.asarray(steps["end_s"] - steps["start_s"], dtype=np.float64)


def kv_usage(
    span: Window | None, totals: StepTotals, replicas: Sequence[ReplicaInfo]
) -> dict[str, float | int | None]:
    """KV blocks in use as a share of the usable ones (all but the null block), over all replicas.

    A step's blocks are held from its beginning to its end; a replica between steps holds none,
    since nothing runs on it. Mean: block-seconds held / (usable blocks x `activity_span`). Mean
    while busy: the same over the time in which steps ran. Peak: the fullest step of any replica.
    """
    usable = np.array([replica.usable_blocks for replica in replicas], dtype=np.float64)
    held_block_s = float(totals.held_block_s.sum())
    busy_block_s = float((usable * totals.busy_s).sum())
    total_block_s = 0.0 if span is None else float(usable.sum()) * span.length_s
    return {
        "usable_blocks": int(usable.sum()),
        "usage_mean_share": share(held_block_s, total_block_s),
        "usage_mean_busy_share": share(held_block_s, busy_block_s),
        "usage_peak_share": None if span is None else float((totals.max_blocks / usable).max()),
    }


def step_stats(totals: StepTotals) -> dict[str, float | int | None]:
    """Steps of all replicas: how many, and the mean of their tokens, requests and time."""
    num_steps = int(totals.num_steps.sum())
    return {
        "steps": num_steps,
        "batch_mean_tokens": share(int(totals.num_tokens.sum()), num_steps),
        "batch_mean_requests": share(int(totals.num_requests.sum()), num_steps),
        "step_mean_s": share(float(totals.busy_s.sum()), num_steps),
        "step_max_s": totals.max_length_s,
    }


def replica_stats(
    requests: Columns, span: Window | None, totals: StepTotals
) -> list[dict[str, float | int | None]]:
    """For each replica its requests, its steps, its tokens and the share of time it was busy."""
    replica = np.asarray(requests["replica"])
    counts = np.bincount(replica[replica >= 0], minlength=totals.num_replicas)
    return [
        {
            "replica": index,
            "requests": int(counts[index]),
            "steps": int(totals.num_steps[index]),
            "computed_tokens": int(totals.num_tokens[index]),
            "output_tokens": int(totals.num_emitted[index]),
            "busy_s": float(totals.busy_s[index]),
            "busy_share": None
            if span is None
            else share(float(totals.busy_s[index]), span.length_s),
        }
        for index in range(totals.num_replicas)
    ]
