"""A small queue simulation that writes rows as `sim.records` defines them.

It is not vLLM's scheduler: first come, first served, preempt the last one, a step time linear in
its tokens. It stands in for the engine where only the rows matter, so that metrics, checks and
plots are tested against rows made by other code than the engine's.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sim.run_result import Columns, ReplicaInfo, RunInfo, RunResult, Slo

REQUEST_TYPES: dict[str, Any] = {
    "request_id": np.int64,
    "replica": np.int32,
    "arrival_s": np.float64,
    "priority": np.int64,
    "num_prompt_tokens": np.int64,
    "target_output_tokens": np.int64,
    "num_output_tokens": np.int64,
    "state": np.str_,
    "reason": np.str_,
    "first_scheduled_s": np.float64,
    "first_token_s": np.float64,
    "last_token_s": np.float64,
    "num_cached_tokens": np.int64,
    "num_readmission_cached_tokens": np.int64,
    "num_preemptions": np.int64,
    "num_preempted_tokens": np.int64,
    "num_scheduled_tokens": np.int64,
    "num_computed_tokens": np.int64,
}
STEP_TYPES: dict[str, Any] = {
    "replica": np.int32,
    "step": np.int64,
    "start_s": np.float64,
    "end_s": np.float64,
    **dict.fromkeys(
        (
            "num_tokens",
            "num_prefill_tokens",
            "num_decodes",
            "num_requests",
            "decode_context_tokens",
            "num_running",
            "num_waiting",
            "kv_blocks_used",
            "num_emitted",
            "num_first_tokens",
            "num_gaps",
            "num_preempted",
            "num_finished",
            "num_cached_tokens",
        ),
        np.int64,
    ),
}
GAP_TYPES: dict[str, Any] = {
    "replica": np.int32,
    "step": np.int64,
    "request_id": np.int64,
    "gap_s": np.float64,
}


def columns_of(rows: Sequence[Mapping[str, Any]], types: Mapping[str, Any]) -> Columns:
    return {name: np.array([row[name] for row in rows], dtype=kind) for name, kind in types.items()}


@dataclass
class ToyRequest:
    request_id: int
    arrival_s: float
    prompt: int
    target: int
    hit: int = 0
    held: int = 0
    replica: int = 0
    state: str = "unfinished"
    reason: str = ""
    computed: int = 0
    outputs: int = 0
    scheduled: int = 0
    cached: int = 0
    readmission_cached: int = 0
    preemptions: int = 0
    lost: int = 0
    first_scheduled_s: float = float("nan")
    token_s: list[float] = field(default_factory=list)
    token_step: list[int] = field(default_factory=list)

    @property
    def goal(self) -> int:
        return self.prompt + self.outputs

    def row(self) -> dict[str, Any]:
        nan = float("nan")
        return {
            "request_id": self.request_id,
            "replica": -1 if self.state == "rejected" else self.replica,
            "arrival_s": self.arrival_s,
            "priority": 0,
            "num_prompt_tokens": self.prompt,
            "target_output_tokens": self.target,
            "num_output_tokens": self.outputs,
            "state": self.state,
            "reason": self.reason,
            "first_scheduled_s": self.first_scheduled_s,
            "first_token_s": self.token_s[0] if self.token_s else nan,
            "last_token_s": self.token_s[-1] if self.token_s else nan,
            "num_cached_tokens": self.cached,
            "num_readmission_cached_tokens": self.readmission_cached,
            "num_preemptions": self.preemptions,
            "num_preempted_tokens": self.lost,
            "num_scheduled_tokens": self.scheduled,
            "num_computed_tokens": self.computed,
        }


@dataclass
class ToyReplica:
    index: int
    info: ReplicaInfo
    base_s: float
    per_token_s: float
    aborts: Mapping[int, float]
    steps: list[dict[str, Any]] = field(default_factory=list)
    gaps: list[dict[str, Any]] = field(default_factory=list)
    running: list[ToyRequest] = field(default_factory=list)
    waiting: deque[ToyRequest] = field(default_factory=deque)

    def blocks(self, tokens: int) -> int:
        return -(-tokens // self.info.block_size)

    def held(self) -> int:
        return sum(self.blocks(r.held) for r in self.running)

    def run(self, arrivals: Sequence[ToyRequest], until_s: float) -> None:
        coming, now_s = deque(arrivals), 0.0
        while coming or self.waiting or self.running:
            if not (self.waiting or self.running):
                now_s = max(now_s, coming[0].arrival_s)
            while coming and coming[0].arrival_s <= now_s:
                self.waiting.append(coming.popleft())
            self.abort(now_s)
            if not (self.waiting or self.running):
                continue
            if now_s >= until_s:
                return
            now_s = self.step(now_s)

    def abort(self, now_s: float) -> None:
        def due(r: ToyRequest) -> bool:
            return self.aborts.get(r.request_id, float("inf")) <= now_s

        for r in [*self.waiting, *self.running]:
            if due(r):
                r.state, r.reason = "aborted", "client"
        self.waiting = deque(r for r in self.waiting if not due(r))
        self.running = [r for r in self.running if not due(r)]

    def step(self, start_s: float) -> float:
        budget, pieces, preempted, hits = self.info.max_num_batched_tokens, {}, 0, 0
        turn = 0
        while turn < len(self.running):
            r = self.running[turn]
            n = min(budget, r.goal - r.computed)
            while not self.fits(r, n) and self.running[-1] is not r:
                victim = self.running.pop()
                budget += pieces.pop(victim.request_id, 0)
                self.preempt(victim)
                preempted += 1
            if not self.fits(r, n):
                self.preempt(self.running.pop())
                preempted += 1
                break
            if n:
                pieces[r.request_id] = n
                r.held, budget = r.computed + n, budget - n
            turn += 1
        while self.waiting and not preempted and budget:
            r = self.waiting[0]
            hit = min(r.hit, r.goal - 1)
            n = min(budget, r.goal - hit)
            r.held = 0
            full = self.held() + self.blocks(hit + n) > self.info.usable_blocks
            if full or len(self.running) >= self.info.max_num_seqs:
                break
            self.running.append(self.waiting.popleft())
            first_time = np.isnan(r.first_scheduled_s)
            r.first_scheduled_s = start_s if first_time else r.first_scheduled_s
            r.cached += hit if first_time else 0
            r.readmission_cached += 0 if first_time else hit
            hits += hit
            r.computed, r.held = hit, hit + n
            pieces[r.request_id] = n
            budget -= n
        return self.update(start_s, pieces, preempted, hits)

    def fits(self, r: ToyRequest, n: int) -> bool:
        others = self.held() - self.blocks(r.held)
        return others + self.blocks(r.computed + n) <= self.info.usable_blocks

    def preempt(self, r: ToyRequest) -> None:
        r.preemptions, r.lost, r.computed = r.preemptions + 1, r.lost + r.computed, 0
        r.held = 0
        self.waiting.appendleft(r)

    def update(self, start_s: float, pieces: dict[int, int], preempted: int, hits: int) -> float:
        tokens = sum(pieces.values())
        batch = [r for r in self.running if r.request_id in pieces]
        context = sum(r.computed + 1 for r in batch if pieces[r.request_id] == 1)
        end_s = start_s + self.base_s + self.per_token_s * tokens + 1e-8 * context
        prefill = sum(pieces[r.request_id] for r in batch if r.computed < r.prompt)
        row = {
            "replica": self.index,
            "step": len(self.steps),
            "start_s": start_s,
            "end_s": end_s,
            "num_tokens": tokens,
            "num_prefill_tokens": prefill,
            "num_decodes": sum(n == 1 for n in pieces.values()),
            "num_requests": len(pieces),
            "decode_context_tokens": context,
            "num_running": len(self.running),
            "num_waiting": len(self.waiting),
            "kv_blocks_used": self.held(),
            "num_preempted": preempted,
            "num_cached_tokens": hits,
        }
        firsts = regular = emitted = 0
        for r in batch:
            r.computed += pieces[r.request_id]
            r.scheduled += pieces[r.request_id]
            if r.computed < r.goal:
                continue
            emitted += 1
            if not r.token_s:
                firsts += 1
            elif r.token_step[-1] == row["step"] - 1:
                regular += 1
            else:
                gap_s = end_s - r.token_s[-1]
                self.gaps.append(
                    {
                        "replica": self.index,
                        "step": row["step"],
                        "request_id": r.request_id,
                        "gap_s": gap_s,
                    }
                )
            r.outputs += 1
            r.token_s.append(end_s)
            r.token_step.append(row["step"])
            if r.outputs == r.target:
                r.state, r.reason = "finished", "length"
        done = [r for r in self.running if r.state == "finished"]
        self.running = [r for r in self.running if r.state != "finished"]
        row |= {
            "num_emitted": emitted,
            "num_first_tokens": firsts,
            "num_gaps": regular,
            "num_finished": len(done),
        }
        self.steps.append(row)
        return end_s


def toy_requests(
    num: int, rate_per_s: float, seed: int, mean_prompt: int = 200, mean_output: int = 40
) -> list[ToyRequest]:
    rng = np.random.Generator(np.random.PCG64(seed))
    arrival = np.cumsum(rng.exponential(1 / rate_per_s, num))
    prompt = 1 + rng.geometric(1 / mean_prompt, num)
    target = rng.geometric(1 / mean_output, num)
    hit = np.where(rng.random(num) < 0.3, prompt // 2, 0)
    return [
        ToyRequest(i, float(arrival[i] - arrival[0]), int(prompt[i]), int(target[i]), int(hit[i]))
        for i in range(num)
    ]


def toy_run(
    requests: Sequence[ToyRequest],
    *,
    num_replicas: int = 1,
    num_gpu_blocks: int = 1000,
    max_num_seqs: int = 16,
    max_num_batched_tokens: int = 512,
    base_s: float = 0.01,
    per_token_s: float = 1e-4,
    aborts: Mapping[int, float] | None = None,
    until_s: float = float("inf"),
    slo: Slo | None = None,
) -> RunResult:
    """Run the requests, each once only: they carry their own progress."""
    info = ReplicaInfo(num_gpu_blocks, "given", 16, max_num_seqs, max_num_batched_tokens)
    accepted = []
    for r in requests:
        if -(-(r.prompt + r.target) // 16) > info.usable_blocks:
            r.state, r.reason = "rejected", "pool_too_small"
        else:
            accepted.append(r)
    for turn, r in enumerate(accepted):
        r.replica = turn % num_replicas
    steps: list[dict[str, Any]] = []
    gaps: list[dict[str, Any]] = []
    for index in range(num_replicas):
        replica = ToyReplica(index, info, base_s, per_token_s, aborts or {})
        replica.run([r for r in accepted if r.replica == index], until_s)
        steps += replica.steps
        gaps += replica.gaps
    steps.sort(key=lambda row: (row["end_s"], row["replica"]))
    return RunResult(
        config={"study": {"seed": 1, "replicas": num_replicas}, "versions": {"headway": "0.1.0"}},
        requests=columns_of([r.row() for r in requests], REQUEST_TYPES),
        steps=columns_of(steps, STEP_TYPES),
        gaps=columns_of(gaps, GAP_TYPES),
        info=RunInfo(
            replicas=(info,) * num_replicas,
            cost={"kind": "linear", "label": "linear: a toy", "calibrated": False, "details": {}},
            slo=slo or Slo(),
            partial=until_s < float("inf"),
        ),
    )
