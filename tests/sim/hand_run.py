"""A run written down by hand: four requests, two replicas, every figure countable on paper."""

from typing import Any

from sim.run_result import ReplicaInfo, RunInfo, RunResult, Slo
from tests.sim.toy_run import GAP_TYPES, REQUEST_TYPES, STEP_TYPES, columns_of

NAN = float("nan")


def request(request_id: int, **changes: Any) -> dict[str, Any]:
    return {
        **dict.fromkeys(REQUEST_TYPES, 0),
        "request_id": request_id,
        "state": "finished",
        "reason": "length",
        "first_scheduled_s": NAN,
        "first_token_s": NAN,
        "last_token_s": NAN,
        **changes,
    }


def step(replica: int, index: int, start_s: float, end_s: float, **changes: Any) -> dict[str, Any]:
    row = {"replica": replica, "step": index, "start_s": start_s, "end_s": end_s}
    return {**dict.fromkeys(STEP_TYPES, 0), **row, **changes}


def hand_run() -> RunResult:
    """Replica 0: requests 0 (three tokens) and 2 (aborted after two tokens).

    Replica 1: request 1 (one token). Request 3 is rejected. Request 0 is left out of step 2, so its
    second gap is irregular: from the end of step 1 (2.0 s) to that of step 3 (5.0 s).
    """
    requests = [
        request(
            0,
            arrival_s=0.0,
            num_prompt_tokens=10,
            target_output_tokens=3,
            num_output_tokens=3,
            first_scheduled_s=0.5,
            first_token_s=1.0,
            last_token_s=5.0,
            num_cached_tokens=4,
            num_scheduled_tokens=8,
            num_computed_tokens=12,
        ),
        request(
            1,
            replica=1,
            arrival_s=1.0,
            num_prompt_tokens=6,
            target_output_tokens=1,
            num_output_tokens=1,
            first_scheduled_s=1.0,
            first_token_s=3.0,
            last_token_s=3.0,
            num_scheduled_tokens=6,
            num_computed_tokens=6,
        ),
        request(
            2,
            arrival_s=1.0,
            num_prompt_tokens=5,
            target_output_tokens=9,
            num_output_tokens=2,
            state="aborted",
            reason="client",
            first_scheduled_s=1.0,
            first_token_s=2.0,
            last_token_s=3.5,
            num_preemptions=0,
            num_scheduled_tokens=6,
            num_computed_tokens=6,
        ),
        request(
            3,
            replica=-1,
            arrival_s=4.0,
            num_prompt_tokens=999,
            target_output_tokens=1,
            state="rejected",
            reason="max_model_len",
        ),
    ]
    steps = [
        step(
            0,
            0,
            0.5,
            1.0,
            num_tokens=6,
            num_prefill_tokens=6,
            num_requests=1,
            num_running=1,
            kv_blocks_used=2,
            num_emitted=1,
            num_first_tokens=1,
            num_cached_tokens=4,
        ),
        step(
            0,
            1,
            1.0,
            2.0,
            num_tokens=6,
            num_prefill_tokens=5,
            num_decodes=1,
            num_requests=2,
            num_running=2,
            kv_blocks_used=4,
            num_emitted=2,
            num_first_tokens=1,
            num_gaps=1,
        ),
        step(
            1,
            0,
            1.0,
            3.0,
            num_tokens=6,
            num_prefill_tokens=6,
            num_requests=1,
            num_running=1,
            kv_blocks_used=1,
            num_emitted=1,
            num_first_tokens=1,
            num_finished=1,
        ),
        step(
            0,
            2,
            2.0,
            3.5,
            num_tokens=1,
            num_decodes=1,
            num_requests=1,
            num_running=2,
            kv_blocks_used=4,
            num_emitted=1,
            num_gaps=1,
        ),
        step(
            0,
            3,
            4.0,
            5.0,
            num_tokens=1,
            num_decodes=1,
            num_requests=1,
            num_running=1,
            kv_blocks_used=2,
            num_emitted=1,
            num_finished=1,
        ),
    ]
    gaps = [{"replica": 0, "step": 3, "request_id": 0, "gap_s": 3.0}]
    return RunResult(
        config={"study": {"replicas": 2}},
        requests=columns_of(requests, REQUEST_TYPES),
        steps=columns_of(steps, STEP_TYPES),
        gaps=columns_of(gaps, GAP_TYPES),
        info=RunInfo(
            replicas=(ReplicaInfo(5, "given", 4, 2, 8), ReplicaInfo(9, "given", 4, 2, 8)),
            cost={"kind": "constant", "label": "constant", "calibrated": False, "details": {}},
            slo=Slo(ttft_s=1.5, e2e_s=6.0),
        ),
    )
