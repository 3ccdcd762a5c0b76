"""Draws random workloads of a family: the same seed gives the same cases."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from sim.conformance.cases import Case, ConformanceError, Row, make_configs
from sim.conformance.families import FAMILIES, Family
from sim.rng import Streams
from sim.scheduler.config import SchedulerConfig

_SHARED_SEGMENTS = 4
_OWN_SEGMENT = 2000
_TURN_SEGMENT = 500_000
_MAX_BLOCKS = 40_000


def make_workloads(family: str, count: int, seed: int, first: int = 0) -> Iterator[Case]:
    """Workloads number `first` to `first + count` of a family, named `family-seed-number`.

    Raises `ConformanceError` for an unknown family.
    """
    if family not in FAMILIES:
        raise ConformanceError(f"unknown family {family!r}; known: {', '.join(FAMILIES)}")
    streams = Streams(seed)
    for number in range(first, first + count):
        draw = _Draw(FAMILIES[family], streams.rng(f"{family}/{number}"))
        yield {"name": f"{family}-{seed}-{number}", **draw.case()}


class _Draw:
    """One case being drawn."""

    def __init__(self, family: Family, rng: np.random.Generator) -> None:
        self.family = family
        self.rng = rng
        self.config: dict[str, Any] = {}
        self.requests: list[Row] = []

    def case(self) -> Case:
        """Options first, then requests, then the pool that can hold each of them."""
        self._draw_options()
        scheduler, _ = make_configs({**self.config, "num_blocks": 2})
        self._draw_requests(scheduler)
        self.config["num_blocks"] = self._num_blocks(scheduler)
        return {"config": self.config, "requests": self.requests}

    def _chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def _one_of(self, values: tuple[Any, ...]) -> Any:
        return values[int(self.rng.integers(len(values)))]

    def _between(self, low: int, high: int) -> int:
        """Both included; `high` counts as `low` if it is less."""
        return int(self.rng.integers(low, max(high, low) + 1))

    def _draw_options(self) -> None:
        family, config = self.family, self.config
        config["block_size"] = self._one_of(family.block_sizes)
        config["enable_prefix_caching"] = self._chance(family.caching)
        config["policy"] = "priority" if self._chance(family.priority) else "fcfs"
        config["max_model_len"] = self._one_of(family.max_model_lens)
        config["scheduler_reserve_full_isl"] = self._chance(family.reserve)
        if self._chance(family.is_async):
            config["async_scheduling"] = True
        if family.loras:
            config["max_loras"] = self._one_of(family.loras)
        if self._chance(family.watermark):
            config["watermark"] = self._one_of((0.01, 0.05, 0.1, 0.2, 0.5))
        self._draw_drafting()
        self._draw_budgets()

    def _draw_drafting(self) -> None:
        family, config = self.family, self.config
        if not family.drafts:
            return
        config["num_speculative_tokens"] = self._one_of(family.drafts)
        config["speculative_method"] = self._one_of(family.methods)
        if config["speculative_method"] != "ngram" and self._chance(family.parallel):
            config["parallel_drafting"] = True

    def _draw_budgets(self) -> None:
        family, config = self.family, self.config
        config["max_num_seqs"] = self._one_of(family.max_num_seqs)
        drafts = config.get("num_speculative_tokens", 0)
        # A step must have room for one request with its drafts and the drafter's own rows.
        budget = max(self._one_of(family.budgets), config["max_num_seqs"], 2 * drafts + 2)
        if self._chance(family.unchunked):
            config["enable_chunked_prefill"] = False
            budget = max(budget, config["max_model_len"] + drafts + 1)
        config["max_num_batched_tokens"] = budget
        if self._chance(family.scheduled_below_batched):
            least = config["max_model_len"] if "enable_chunked_prefill" in config else drafts + 1
            config["max_num_scheduled_tokens"] = max(least, self._between(budget // 4, budget))
        if self._chance(family.threshold):
            config["long_prefill_token_threshold"] = drafts + self._one_of(family.thresholds)

    def _draw_requests(self, scheduler: SchedulerConfig) -> None:
        family = self.family
        mean_gap = self._one_of(family.gap)
        ties = self._chance(family.equal_times)
        step = 0
        for number in range(self._between(*family.num_requests)):
            if mean_gap:
                step += int(self.rng.geometric(1 / (mean_gap + 1))) - 1
            request = self._draw_request(number, step, scheduler)
            if ties:
                request["arrival_time"] = float(step // 8)
                request["priority"] = self._between(0, 1)
            self.requests.append(request)

    def _draw_request(self, number: int, step: int, scheduler: SchedulerConfig) -> Row:
        family = self.family
        prompt = self._draw_prompt(number, scheduler.max_model_len - 1)
        room = scheduler.max_model_len - sum(n for _, n in prompt)
        max_tokens = min(self._between(*family.output_tokens), room)
        if self._chance(family.past_model_len):
            max_tokens = room + self._between(0, 50)
        request: Row = {
            "id": f"r{number}",
            "arrival_step": step,
            "arrival_time": step + number / 1000,
            "priority": self._between(0, 5) if scheduler.policy == "priority" else 0,
            "prompt": prompt,
            "max_tokens": max_tokens,
        }
        self._draw_ending(request)
        if scheduler.max_loras and self._chance(0.8):
            request["lora"] = self._between(1, scheduler.max_loras + 2)
        if scheduler.num_speculative_tokens:
            self._draw_drafts(request, scheduler.num_speculative_tokens)
        return request

    def _draw_prompt(self, number: int, limit: int) -> list[list[Any]]:
        """Segments, at most `limit` tokens in all and at least one."""
        family = self.family
        low, high = family.prompt_tokens
        if self._chance(family.short_prompts):
            low, high = 1, 2 * self.config["block_size"] + 1
        num_tokens = min(self._between(low, min(high, limit)), limit)
        if self.requests and self._chance(family.turns):
            return self._continue(number, limit)
        own = _OWN_SEGMENT + number
        if not self._chance(family.shared):
            return [[own, num_tokens]]
        shared = self._between(0, _SHARED_SEGMENTS - 1)
        num_shared = self._between(1, num_tokens)
        prompt: list[list[Any]] = [[shared, num_shared]]
        if num_tokens > num_shared:
            prompt.append([own, num_tokens - num_shared])
        return prompt

    def _continue(self, number: int, limit: int) -> list[list[Any]]:
        """The next turn after an earlier request: its prompt, some output, something new."""
        earlier = self.requests[self._between(0, len(self.requests) - 1)]
        num_outputs = int(earlier.get("eos_at") or earlier["max_tokens"])
        prompt = [
            *(list(piece) for piece in earlier["prompt"]),
            [f"out:{earlier['id']}", self._between(1, num_outputs)],
            [_TURN_SEGMENT + number, self._between(1, 40)],
        ]
        return _cut(prompt, limit)

    def _draw_ending(self, request: Row) -> None:
        family = self.family
        if self._chance(family.stops):
            request["eos_at"] = self._between(1, request["max_tokens"])
        soon = request["arrival_step"] + self._between(0, 60)
        if self._chance(family.aborts):
            request["abort_step"] = soon
        elif self._chance(family.mid_aborts):
            request["abort_mid"] = soon

    def _draw_drafts(self, request: Row, num_drafts: int) -> None:
        """Eager, shy and mixed proposers; good and bad ones."""
        kind = self._between(0, 3)
        least = num_drafts if kind == 0 else 0
        length = self._between(1, 9)
        request["proposals"] = [self._between(least, num_drafts) for _ in range(length)]
        best = 0 if self._chance(0.15) else num_drafts
        request["accepts"] = [self._between(0, best) for _ in range(self._between(1, 9))]

    def _num_blocks(self, scheduler: SchedulerConfig) -> int:
        """Null block, what the largest request needs alone, and as much more as the draw says."""
        block_size = self.config["block_size"]
        slack = scheduler.num_lookahead_tokens + 2 * scheduler.num_speculative_tokens + 1
        needs: list[int] = [
            -(-(min(_length(r) + slack, scheduler.max_model_len)) // block_size)
            for r in self.requests
        ]
        family = self.family
        if self._chance(family.ample):
            return min(1 + sum(needs), _MAX_BLOCKS)
        more = 0.0
        if not self._chance(family.tight):
            more = float(self.rng.uniform(*family.pool)) * sum(needs) / len(needs)
        return 1 + max(needs) + int(more)


def _length(request: Row) -> int:
    return int(sum(n for _, n in request["prompt"]) + request["max_tokens"])


def _cut(prompt: list[list[Any]], limit: int) -> list[list[Any]]:
    cut: list[list[Any]] = []
    for segment, num_tokens in prompt:
        kept = min(num_tokens, limit)
        if kept:
            cut.append([segment, kept])
        limit -= kept
    return cut
