"""Whatever is thrown at it: work that fits ends, nothing is lost, and every step is lawful."""

from hypothesis import given, settings
from hypothesis import strategies as st

from sim.conformance.cases import ConformanceError
from sim.conformance.replay import Replay
from sim.scheduler.async_scheduler import create_scheduler
from sim.scheduler.drafting import METHODS, drafting_options
from sim.scheduler.scheduler import LoraCapError

MAX_LEN = 64


@st.composite
def configs(draw):
    drafts = draw(st.sampled_from([0, 0, 1, 3]))
    config = {
        "num_blocks": 0,
        "block_size": draw(st.sampled_from([1, 4, 8])),
        "enable_prefix_caching": draw(st.booleans()),
        "max_model_len": MAX_LEN,
        "max_num_seqs": draw(st.sampled_from([1, 3, 8])),
        "policy": draw(st.sampled_from(["fcfs", "priority"])),
        "async_scheduling": draw(st.booleans()),
        "scheduler_reserve_full_isl": draw(st.booleans()),
        "watermark": draw(st.sampled_from([0.0, 0.1, 0.5])),
        "enable_chunked_prefill": draw(st.booleans()),
        "num_speculative_tokens": drafts,
        "max_loras": draw(st.sampled_from([0, 1, 2])),
    }
    least = MAX_LEN + 10 if not config["enable_chunked_prefill"] else 10
    config["max_num_batched_tokens"] = draw(st.integers(least, least + 60))
    if drafts:
        config["speculative_method"] = draw(st.sampled_from(METHODS))
    if draw(st.booleans()):
        config["long_prefill_token_threshold"] = drafts + draw(st.integers(1, 20))
    return config


@st.composite
def cases(draw):
    config = draw(configs())
    requests = []
    for number in range(draw(st.integers(1, 14))):
        num_prompt = draw(st.integers(1, MAX_LEN - 1))
        shared = draw(st.integers(0, num_prompt))
        requests.append(
            {
                "id": number,
                "arrival_step": draw(st.sampled_from([0, 0, 0, 2, 9])),
                "arrival_time": float(draw(st.integers(0, 3))),
                "priority": draw(st.integers(0, 2)),
                "prompt": [
                    [s, n] for s, n in ((0, shared), (100 + number, num_prompt - shared)) if n
                ],
                "max_tokens": draw(st.integers(1, 40)),
                "eos_at": draw(st.sampled_from([None, None, 1, 5])),
                "abort_step": draw(st.sampled_from([None, None, None, 3, 12])),
                "abort_mid": draw(st.sampled_from([None, None, None, 4, 8])),
                "lora": draw(st.integers(0, 3)),
                "proposals": [3, 0, 1],
                "accepts": [3, 0, 1, 2],
            }
        )
    config["num_blocks"] = num_blocks(config, requests) + draw(st.integers(0, 12))
    return {"name": "random", "config": config, "requests": requests}


def num_blocks(config, requests) -> int:
    """The least pool in which each request can end when it is alone."""
    drafts = config["num_speculative_tokens"]
    options = drafting_options(config.get("speculative_method", "ngram"), drafts) if drafts else {}
    slack = options.get("num_lookahead_tokens", 0) + 2 * drafts + 1
    longest = max(sum(n for _, n in r["prompt"]) + r["max_tokens"] for r in requests)
    return 1 + -(-min(longest + slack, MAX_LEN) // config["block_size"])


class Watched(Replay):
    """A replay that keeps every request, and looks at every step."""

    def __init__(self, case):
        super().__init__(case, create_scheduler, 2000)
        self.everyone = {}
        self.add_request = self.scheduler.add_request
        self.scheduler.add_request = self.keep

    def keep(self, request):
        self.everyone[request.request_id] = request
        self.add_request(request)

    def _iterate(self, step):
        row = super()._iterate(step)
        self.scheduler.check()
        for request in self.everyone.values():
            check_counters(request)
        if row is not None and "scheduled" in row:
            self.check_step(row)
        return row

    def check_step(self, row):
        scheduled = row["scheduled"]
        config = self.config
        assert all(n > 0 for n in scheduled.values())
        assert sum(scheduled.values()) <= config.token_budget
        slots = config.max_num_new_slots_for_drafting * len(scheduled)
        assert sum(scheduled.values()) + slots <= config.max_num_batched_tokens
        assert len(row["running"]) <= config.max_num_seqs
        assert set(scheduled) <= set(row["running"])
        assert not (row["preempted"] and (row["new"] or row["resumed"]))
        queued = [*row["running"], *row["waiting"], *row["skipped"]]
        assert len(queued) == len(set(queued))
        loras = {self.by_id[r]["lora"] for r in scheduled} - {0}
        assert not config.max_loras or len(loras) <= config.max_loras


def check_counters(request) -> None:
    """The identity that `Request` promises."""
    got = (
        request.num_scheduled_tokens
        + request.num_cached_tokens
        + request.num_readmission_cached_tokens
    )
    assert got == (
        request.num_computed_tokens + request.num_preempted_tokens + request.num_rejected_tokens
    )


def run_unless_vllm_fails(replay):
    """The steps; None where an assertion ends vLLM's engine (`tests/parity/test_lora_cap.py`)."""
    try:
        return replay.run()
    except ConformanceError as error:
        config = replay.config
        drafts_ahead = config.async_scheduling and config.num_speculative_tokens
        assert isinstance(error.__cause__, LoraCapError) and drafts_ahead
        return None


@settings(max_examples=150, deadline=None)
@given(cases())
def test_everything_that_fits_ends_and_every_block_comes_back(case):
    replay = Watched(case)
    rows = run_unless_vllm_fails(replay)
    if rows is None:
        return
    emitted: dict = {}
    ends: list = []
    for row in rows:
        for request_id, num_tokens in row.get("emitted", {}).items():
            emitted[request_id] = emitted.get(request_id, 0) + num_tokens
        ends += [
            *row.get("finished", ()),
            *map(int, row.get("aborted", ())),
            *map(int, row.get("aborted_mid", ())),
        ]
    assert sorted(ends) == sorted(spec["id"] for spec in case["requests"])
    assert not replay.scheduler.requests and not replay.scheduler.running
    assert replay.scheduler.num_waiting == 0
    assert replay.scheduler.kv_cache_manager.num_used_blocks == 0
    for spec in case["requests"]:
        check_outputs(spec, replay.everyone[spec["id"]], emitted.get(spec["id"], 0))


def check_outputs(spec, request, num_emitted) -> None:
    assert request.num_output_tokens == num_emitted
    length = min(
        spec["max_tokens"],
        spec["eos_at"] or MAX_LEN,
        MAX_LEN - request.num_prompt_tokens,
    )
    if request.status.value in ("stop", "length"):
        assert num_emitted == length
        assert request.status.value == ("stop" if spec["eos_at"] == length else "length")
    else:
        assert num_emitted <= length


@settings(max_examples=40, deadline=None)
@given(cases())
def test_the_same_workload_is_decided_the_same_way(case):
    assert run_unless_vllm_fails(Replay(case)) == run_unless_vllm_fails(Replay(case))
