"""Where vLLM's own assertion on `max_loras` ends its engine, a run ends, too, and says so.

With async scheduling and drafts, a running request whose step in flight could be its last is
passed over and leaves its place among the adapters to another. Its drafts are then rejected.
"""

import os
from pathlib import Path
from typing import Any

import pytest

from calibration import ConstantCost
from sim.conformance import ConformanceError, replay_case
from sim.conformance.record import Recorder
from sim.drafts import Drafting
from sim.errors import SimulationError
from sim.scheduler.config import CacheConfig, SchedulerConfig
from sim.scheduler.drafting import drafting_options
from sim.simulation import simulate
from tests.sim.small_study import make_study
from traces import RequestSpec

NUM_DRAFTS = 3


def a_case(**changes: Any) -> dict[str, Any]:
    """Request 0 may end with its first draft: while that is in flight request 1 is admitted."""
    config = {
        "num_blocks": 69,
        "block_size": 1,
        "max_model_len": 64,
        "max_num_seqs": 3,
        "max_num_batched_tokens": 74,
        "async_scheduling": True,
        "num_speculative_tokens": NUM_DRAFTS,
        "max_loras": 1,
    }
    every = {"arrival_step": 0, "arrival_time": 0.0, "priority": 0, "eos_at": None}
    every |= {"abort_step": None, "abort_mid": None, "proposals": [NUM_DRAFTS], "accepts": [0]}
    requests = [
        {"id": 0, "prompt": [[100, 59]], "max_tokens": 3, "lora": 2, **every},
        {"id": 1, "prompt": [[101, 1]], "max_tokens": 2, "lora": 1, **every},
    ]
    return {"name": "lora_cap-0-0", "config": {**config, **changes}, "requests": requests}


def test_a_replay_ends_where_vllm_does() -> None:
    with pytest.raises(ConformanceError, match=r"2 LoRA adapters .* max_loras is 1"):
        replay_case(a_case())


def test_vllm_fails_on_that_workload_by_an_assertion() -> None:
    python = os.environ.get("HEADWAY_VLLM_PYTHON")
    if not python:
        pytest.skip("HEADWAY_VLLM_PYTHON does not name a Python with vLLM")
    with (
        Recorder(Path(python)) as recorder,
        pytest.raises(ConformanceError, match=r"assert len.* <= self.lora_config.max_loras"),
    ):
        recorder.record(a_case())


@pytest.mark.parametrize(
    "mended", [{"max_loras": 2}, {"async_scheduling": False}, {"num_speculative_tokens": 0}]
)
def test_what_the_sentence_advises_helps(mended: dict[str, Any]) -> None:
    rows = replay_case(a_case(**mended))
    assert sorted(request for row in rows for request in row.get("finished", ())) == [0, 1]


def test_a_run_ends_with_the_replica_and_the_instant() -> None:
    scheduler = SchedulerConfig(
        max_num_seqs=3,
        max_num_batched_tokens=74,
        max_model_len=64,
        async_scheduling=True,
        max_loras=1,
        num_speculative_tokens=NUM_DRAFTS,
        **drafting_options("ngram", NUM_DRAFTS),
    )
    rejected = Drafting(NUM_DRAFTS, acceptance_rates=(0.0,) * NUM_DRAFTS)
    study = make_study(
        [RequestSpec(0, 0.0, 59, 3, lora_id=2), RequestSpec(1, 0.0, 1, 2, lora_id=1)],
        scheduler,
        CacheConfig(69, 1),
        ConstantCost(0.01),
        engine={"drafting": rejected},
    )
    with pytest.raises(SimulationError, match=r"replica 0 at 0\.\d+ s: .*max_loras is 1"):
        simulate(study)
