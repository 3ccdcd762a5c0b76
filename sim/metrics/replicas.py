"""How busy each replica was, how full its KV cache, and what its steps looked like."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from sim.metrics.throughput import Window, share
from sim.run_result import Columns, ReplicaInfo


def activity_span(requests: Columns, steps: Columns) -> Window | None:
    """From the first arrival to the end of the last step; None if no step ran."""
    if not len(steps["end_s"]):
        return None
    return Window(float(requests["arrival_s"].min()), float(steps["end_s"].max()))


def step_length_s(steps: Columns) -> npt.NDArray[np.float64]:
    """Seconds from the beginning of each step on the device to its results."""
    return np.asarray(steps["end_s"] - steps["start_s"], dtype=np.float64)


def kv_usage(
    requests: Columns, steps: Columns, replicas: Sequence[ReplicaInfo]
) -> dict[str, float | int | None]:
    """KV blocks in use as a share of the usable ones (all but the null block), over all replicas.

    A step's blocks are held from its beginning to its end; a replica between steps holds none,
    since nothing runs on it. Mean: block-seconds held / (usable blocks x `activity_span`). Mean
    while busy: the same over the time in which steps ran. Peak: the fullest step of any replica.
    """
    usable = np.array([replica.usable_blocks for replica in replicas], dtype=np.float64)
    usable_here = usable[steps["replica"]]
    length_s = step_length_s(steps)
    span = activity_span(requests, steps)
    held_block_s = float((steps["kv_blocks_used"] * length_s).sum())
    busy_block_s = float((usable_here * length_s).sum())
    total_block_s = 0.0 if span is None else float(usable.sum()) * span.length_s
    used_share = steps["kv_blocks_used"] / usable_here
    return {
        "usable_blocks": int(usable.sum()),
        "usage_mean_share": share(held_block_s, total_block_s),
        "usage_mean_busy_share": share(held_block_s, busy_block_s),
        "usage_peak_share": float(used_share.max()) if len(used_share) else None,
    }


def step_stats(steps: Columns) -> dict[str, float | int | None]:
    """Steps of all replicas: how many, and the mean of their tokens, requests and time."""
    num_steps = len(steps["step"])
    length_s = step_length_s(steps)
    return {
        "steps": num_steps,
        "batch_mean_tokens": share(int(steps["num_tokens"].sum()), num_steps),
        "batch_mean_requests": share(int(steps["num_requests"].sum()), num_steps),
        "step_mean_s": share(float(length_s.sum()), num_steps),
        "step_max_s": float(length_s.max()) if num_steps else None,
    }


def replica_stats(
    requests: Columns, steps: Columns, replicas: Sequence[ReplicaInfo]
) -> list[dict[str, float | int | None]]:
    """For each replica its requests, its steps, its tokens and the share of time it was busy."""
    span = activity_span(requests, steps)
    return [_one_replica(requests, steps, i, span) for i in range(len(replicas))]


def _one_replica(
    requests: Columns, steps: Columns, replica: int, span: Window | None
) -> dict[str, float | int | None]:
    mine = steps["replica"] == replica
    busy_s = float(step_length_s(steps)[mine].sum())
    return {
        "replica": replica,
        "requests": int((requests["replica"] == replica).sum()),
        "steps": int(mine.sum()),
        "computed_tokens": int(steps["num_tokens"][mine].sum()),
        "output_tokens": int(steps["num_emitted"][mine].sum()),
        "busy_s": busy_s,
        "busy_share": None if span is None else share(busy_s, span.length_s),
    }
