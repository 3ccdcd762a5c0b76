"""Wrong rules: each replaces one passage of the scheduler by another that reads plausibly.

Not among them, since no recorded case can tell: admitting a preempted request whose old output is
still in flight (with a batch queue of two it always came out before), counting prefill chunks
without placeholders (who has placeholders has computed its prompt), and not refunding the rows of
a victim's drafter (tests/scheduler/test_refund.py shows that one). Two rules of the ledger are
left out too, for hits that begin inside a run: a request's last block is always reused first, so
no such hit was ever seen.
"""

from __future__ import annotations

from typing import NamedTuple

SCHEDULER = "scheduler/scheduler.py"
ASYNC = "scheduler/async_scheduler.py"
MANAGER = "scheduler/kv_cache_manager.py"
POOL = "scheduler/block_pool.py"
LEDGER = "scheduler/kv_ledger.py"
REQUEST = "scheduler/request.py"
QUEUE = "scheduler/request_queue.py"
HASH = "scheduler/block_hash.py"


class Mutant(NamedTuple):
    """`old` occurs exactly once in `file` and is replaced by `new`."""

    rule: str
    file: str
    old: str
    new: str


MUTANTS = [
    # The running loop
    Mutant(
        "a request that needs nothing ends the running loop",
        SCHEDULER,
        "                continue  # passed over, but a later request may need less",
        "                return",
    ),
    Mutant(
        "a request that preempts itself does not end the running loop",
        SCHEDULER,
        "            if new_blocks is None:\n                return\n            step.running",
        "            if new_blocks is None:\n                continue\n            step.running",
    ),
    Mutant(
        "a preempted request is passed over one too late",
        SCHEDULER,
        "            if request.status is not RequestStatus.RUNNING:\n                continue",
        "            if request.status is RequestStatus.WAITING:\n                continue",
    ),
    Mutant(
        "no threshold for running requests",
        SCHEDULER,
        "        if 0 < config.long_prefill_token_threshold < lag:\n",
        "        if config.long_prefill_token_threshold < 0:\n",
    ),
    Mutant(
        "no room kept for the sampled token below max_model_len",
        SCHEDULER,
        "config.max_model_len - computed - 1,",
        "config.max_model_len - computed,",
    ),
    Mutant(
        "a step past max_tokens under async scheduling",
        SCHEDULER,
        "        if placeholders and (\n            computed + 2",
        "        if placeholders < 0 and (\n            computed + 2",
    ),
    Mutant(
        "the guard of max_tokens one token late",
        SCHEDULER,
        "computed + 2 - placeholders >=",
        "computed + 1 - placeholders >=",
    ),
    Mutant(
        "the guard of max_tokens one token early",
        SCHEDULER,
        "computed + 2 - placeholders >=",
        "computed + 3 - placeholders >=",
    ),
    Mutant(
        "the guard counts placeholders as tokens",
        SCHEDULER,
        "computed + 2 - placeholders >=",
        "computed + 1 >=",
    ),
    Mutant(
        "the guard also without placeholders",
        SCHEDULER,
        "        if placeholders and (\n",
        "        if (\n",
    ),
    Mutant(
        "drafter's rows not charged for running requests",
        SCHEDULER,
        "            step.input_budget -= num_new_tokens + draft_slots\n            self._take",
        "            step.input_budget -= num_new_tokens\n            self._take",
    ),
    Mutant(
        "drafter's rows not kept free for running requests",
        SCHEDULER,
        "            step.input_budget - config.max_num_new_slots_for_drafting,\n",
        "            step.input_budget,\n",
    ),
    Mutant(
        "no lookahead slots for running requests",
        SCHEDULER,
        "request, num_new_tokens, num_lookahead_tokens=self.config.num_lookahead_tokens",
        "request, num_new_tokens",
    ),
    Mutant(
        "drafts that were cut off count as scheduled",
        SCHEDULER,
        "step.drafts[request.request_id] = min(num_drafts, request.num_spec_tokens)",
        "step.drafts[request.request_id] = request.num_spec_tokens",
    ),
    Mutant(
        "drafts counted without placeholders",
        SCHEDULER,
        "        known = request.num_tokens + request.num_output_placeholders\n",
        "        known = request.num_tokens\n",
    ),
    # Preemption
    Mutant(
        "FCFS preempts the oldest",
        SCHEDULER,
        "return next(reversed(self.running.values()))",
        "return next(iter(self.running.values()))",
    ),
    Mutant(
        "PRIORITY preempts as FCFS does",
        SCHEDULER,
        '        if self.config.policy == "fcfs":\n            return next(rev',
        "        if self.config.policy:\n            return next(rev",
    ),
    Mutant(
        "PRIORITY preempts the most urgent",
        SCHEDULER,
        "return max(self.running.values(), key",
        "return min(self.running.values(), key",
    ),
    Mutant(
        "ties between victims broken by id",
        SCHEDULER,
        "key=lambda request: priority_key(request)[:2])",
        "key=priority_key)",
    ),
    Mutant(
        "ties between victims broken by the last in running order",
        SCHEDULER,
        "return max(self.running.values(), key",
        "return max(reversed(self.running.values()), key",
    ),
    Mutant(
        "victims chosen without regard to arrival",
        SCHEDULER,
        "key=lambda request: priority_key(request)[:2])",
        "key=lambda request: request.priority)",
    ),
    Mutant(
        "no refund to the token budget",
        SCHEDULER,
        "        step.token_budget += restored\n",
        "",
    ),
    Mutant(
        "no refund to the input budget",
        SCHEDULER,
        "        step.input_budget += restored + self.config.max_num_new_slots_for_drafting\n",
        "",
    ),
    Mutant(
        "a victim's drafts stay in the step",
        SCHEDULER,
        "        step.drafts.pop(victim.request_id, None)\n",
        "",
    ),
    Mutant(
        "a victim of this step is not taken out of it",
        SCHEDULER,
        "            if victim.request_id in step.num_scheduled_tokens:\n",
        "            if victim.request_id in step.drafts:\n",
    ),
    Mutant(
        "preempted requests queue at the tail",
        SCHEDULER,
        "        self.waiting.prepend_request(request)\n",
        "        self.waiting.add_request(request)\n",
    ),
    Mutant(
        "preempted requests go to the skipped queue",
        SCHEDULER,
        "        self.waiting.prepend_request(request)\n",
        "        self.skipped_waiting.prepend_request(request)\n",
    ),
    Mutant(
        "output in flight at a preemption counts as fresh",
        SCHEDULER,
        "        request.num_stale_output_tokens = request.num_in_flight_tokens\n",
        "",
    ),
    Mutant(
        "placeholders survive a preemption",
        SCHEDULER,
        "        request.num_output_placeholders = 0\n        request.num_preemptions",
        "        request.num_preemptions",
    ),
    Mutant(
        "drafts survive a preemption",
        SCHEDULER,
        "        request.num_computed_tokens = 0\n        request.num_spec_tokens = 0\n",
        "        request.num_computed_tokens = 0\n",
    ),
    Mutant(
        "a step that preempted admits",
        SCHEDULER,
        "        if not step.preempted:\n",
        "        if step.preempted is not None:\n",
    ),
    # Admission
    Mutant(
        "one request more than max_num_seqs",
        SCHEDULER,
        "and len(self.running) < config.max_num_seqs",
        "and len(self.running) <= config.max_num_seqs",
    ),
    Mutant(
        "max_num_seqs counts scheduled requests only",
        SCHEDULER,
        "and len(self.running) < config.max_num_seqs",
        "and len(step.num_scheduled_tokens) < config.max_num_seqs",
    ),
    Mutant(
        "all running adapters count towards the cap",
        SCHEDULER,
        "for request in step.running if request.lora_id}",
        "for request in self.running.values() if request.lora_id}",
    ),
    Mutant(
        "one adapter more than max_loras",
        SCHEDULER,
        "0 < self.config.max_loras == len(loras)",
        "0 < self.config.max_loras == len(loras) - 1",
    ),
    Mutant(
        "adapters admitted in this step do not count",
        SCHEDULER,
        "                loras.add(request.lora_id)\n",
        "                pass\n",
    ),
    Mutant(
        "the LoRA cap ends admission",
        SCHEDULER,
        "                skipped.append(queue.pop_request())\n                continue\n",
        "                break\n",
    ),
    Mutant(
        "the base model is subject to the LoRA cap",
        SCHEDULER,
        "            and request.lora_id != 0\n",
        "",
    ),
    Mutant(
        "skipped requests are put back in reverse",
        SCHEDULER,
        "self.skipped_waiting.prepend_requests(skipped)",
        "self.skipped_waiting.prepend_requests(skipped[::-1])",
    ),
    Mutant(
        "skipped requests go behind older skipped ones",
        SCHEDULER,
        "            self.skipped_waiting.prepend_requests(skipped)\n",
        "            for request in skipped:\n"
        "                self.skipped_waiting.add_request(request)\n",
    ),
    Mutant(
        "skipped requests go back to waiting",
        SCHEDULER,
        "self.skipped_waiting.prepend_requests(skipped)",
        "self.waiting.prepend_requests(skipped)",
    ),
    Mutant(
        "waiting before skipped under FCFS",
        SCHEDULER,
        "        if skipped:\n"
        "            return skipped\n        return waiting if waiting else None\n",
        "        if waiting:\n"
        "            return waiting\n        return skipped if skipped else None\n",
    ),
    Mutant(
        "skipped before waiting under PRIORITY",
        SCHEDULER,
        'if waiting and skipped and self.config.policy != "fcfs":',
        'if waiting and skipped and self.config.policy == "lottery":',
    ),
    Mutant(
        "a resumed request computes its prompt only",
        SCHEDULER,
        "        num_new_tokens = request.num_tokens - num_cached\n",
        "        num_new_tokens = max(request.num_prompt_tokens - num_cached, 1)\n",
    ),
    Mutant(
        "padding without a running batch",
        SCHEDULER,
        "            and step.running\n",
        "",
    ),
    Mutant(
        "padding beside prefill chunks",
        SCHEDULER,
        "            and not step.prefill_scheduled\n",
        "",
    ),
    Mutant(
        "padding past max_model_len",
        SCHEDULER,
        "            and num_cached + 1 + "
        "config.num_speculative_tokens + 1 <= config.max_model_len\n",
        "",
    ),
    Mutant(
        "padding up to max_model_len",
        SCHEDULER,
        "num_cached + 1 + config.num_speculative_tokens + 1 <= config.max_model_len",
        "num_cached + 1 + config.num_speculative_tokens <= config.max_model_len",
    ),
    Mutant(
        "padding cut to the budget",
        SCHEDULER,
        "            if num_new_tokens > budget:\n                return 0, 0\n        if 0",
        "        if 0",
    ),
    Mutant(
        "no padding",
        SCHEDULER,
        "            num_padding = config.num_speculative_tokens\n",
        "            num_padding = 0\n",
    ),
    Mutant(
        "a running prefill is one with more than one token",
        SCHEDULER,
        "step.prefill_scheduled |= request.is_prefill_chunk",
        "step.prefill_scheduled |= num_new_tokens > 1",
    ),
    Mutant(
        "no threshold at admission",
        SCHEDULER,
        "        if 0 < config.long_prefill_token_threshold < num_new_tokens:\n",
        "        if config.long_prefill_token_threshold < 0:\n",
    ),
    Mutant(
        "prompts chunked though chunked prefill is off",
        SCHEDULER,
        "        if num_new_tokens > budget and not config.enable_chunked_prefill:\n",
        "        if num_new_tokens > budget < 0:\n",
    ),
    Mutant(
        "the input budget does not bind at admission",
        SCHEDULER,
        "min(step.token_budget, step.input_budget - config.max_num_new_slots_for_drafting)",
        "step.token_budget",
    ),
    Mutant(
        "drafter's rows not charged at admission",
        SCHEDULER,
        "        step.input_budget -= num_new_tokens + config.max_num_new_slots_for_drafting\n",
        "        step.input_budget -= num_new_tokens\n",
    ),
    Mutant(
        "no lookahead slots at admission",
        SCHEDULER,
        "            num_lookahead_tokens=config.num_lookahead_tokens,\n",
        "",
    ),
    Mutant(
        "admission does not ask for the whole length",
        SCHEDULER,
        "full_sequence_must_fit=config.scheduler_reserve_full_isl",
        "full_sequence_must_fit=False",
    ),
    Mutant(
        "admission always asks for the whole length",
        SCHEDULER,
        "full_sequence_must_fit=config.scheduler_reserve_full_isl",
        "full_sequence_must_fit=True",
    ),
    Mutant(
        "the watermark applies when idle",
        SCHEDULER,
        "has_scheduled_reqs=bool(self.running)",
        "has_scheduled_reqs=True",
    ),
    Mutant(
        "the watermark applies only beside scheduled running requests",
        SCHEDULER,
        "has_scheduled_reqs=bool(self.running)",
        "has_scheduled_reqs=bool(step.running)",
    ),
    # Progress and results
    Mutant(
        "stale drafts are rejected too",
        SCHEDULER,
        "            if num_drafts and not is_stale:\n",
        "            if num_drafts:\n",
    ),
    Mutant(
        "rejected drafts keep their placeholders",
        SCHEDULER,
        "            request.num_output_placeholders -= num_rejected\n",
        "            pass\n",
    ),
    Mutant(
        "rejected drafts stay computed",
        SCHEDULER,
        "        request.num_computed_tokens -= num_rejected\n",
        "",
    ),
    Mutant(
        "stale output is dropped",
        SCHEDULER,
        "            if not num_sampled:\n",
        "            if not num_sampled or is_stale:\n",
    ),
    Mutant(
        "tokens after a stop are kept",
        SCHEDULER,
        "                return num_new, True\n",
        "                return num_sampled, True\n",
    ),
    Mutant(
        "drafts for unfinished prompts are kept",
        SCHEDULER,
        "0 if request.is_prefill_chunk else num_spec_tokens",
        "num_spec_tokens",
    ),
    Mutant(
        "one token more than max_tokens",
        REQUEST,
        "self.num_output_tokens >= self.max_tokens",
        "self.num_output_tokens > self.max_tokens",
    ),
    Mutant(
        "one token more than max_model_len",
        REQUEST,
        "self.num_tokens >= max_model_len",
        "self.num_tokens > max_model_len",
    ),
    Mutant(
        "stop tokens are ignored",
        REQUEST,
        "        if self.num_output_tokens == self.stop_at:\n",
        "        if self.stop_at == 0:\n",
    ),
    # Async scheduling
    Mutant(
        "a placeholder for the sampled token only",
        ASYNC,
        "request.num_output_placeholders += 1 + num_drafts",
        "request.num_output_placeholders += 1",
    ),
    Mutant(
        "stale output takes placeholders down",
        ASYNC,
        "        if not is_stale:\n",
        "        if request is not None:\n",
    ),
    Mutant(
        "placeholders are hashed as if known",
        ASYNC,
        "request, request.num_computed_tokens - request.num_output_placeholders\n",
        "request, request.num_computed_tokens\n",
    ),
    Mutant(
        "delivered tokens are not hashed",
        ASYNC,
        "        if was_running:\n",
        "        if was_running is None:\n",
    ),
    # KV cache
    Mutant(
        "the null block is not part of the watermark's base",
        MANAGER,
        "int(scheduler.watermark * cache.num_gpu_blocks)",
        "int(scheduler.watermark * (cache.num_gpu_blocks - 1))",
    ),
    Mutant(
        "the watermark is rounded up",
        MANAGER,
        "int(scheduler.watermark * cache.num_gpu_blocks)",
        "-int(-scheduler.watermark * cache.num_gpu_blocks // 1)",
    ),
    Mutant(
        "the watermark binds running requests too",
        MANAGER,
        "if has_scheduled_reqs and request.status is not RequestStatus.RUNNING:",
        "if has_scheduled_reqs:",
    ),
    Mutant(
        "the watermark spares resumed requests",
        MANAGER,
        "request.status is not RequestStatus.RUNNING:",
        "request.status is RequestStatus.WAITING:",
    ),
    Mutant(
        "the watermark only in the full-length check",
        MANAGER,
        "        num_slots = num_computed + num_new_tokens + num_lookahead_tokens\n",
        "        num_slots = num_computed + num_new_tokens + num_lookahead_tokens\n"
        "        available = pool.num_free_blocks - sum(\n"
        "            pool.ref_cnt[block] == 0 for block in new_computed_blocks\n        )\n",
    ),
    Mutant(
        "free hits do not count against the free blocks",
        MANAGER,
        "        reserve = sum(pool.ref_cnt[block] == 0 for block in new_computed_blocks)\n",
        "        reserve = 0\n",
    ),
    Mutant(
        "held hits count against the free blocks too",
        MANAGER,
        "        reserve = sum(pool.ref_cnt[block] == 0 for block in new_computed_blocks)\n",
        "        reserve = len(new_computed_blocks)\n",
    ),
    Mutant(
        "a fully cached prompt is not computed at all",
        MANAGER,
        "        num_full_blocks = (request.num_tokens - 1) // self.block_size\n",
        "        num_full_blocks = request.num_tokens // self.block_size\n",
    ),
    Mutant(
        "a resumed request looks up its prompt only",
        MANAGER,
        "        num_full_blocks = (request.num_tokens - 1) // self.block_size\n",
        "        num_full_blocks = (request.num_prompt_tokens - 1) // self.block_size\n",
    ),
    Mutant(
        "no hit is dropped for EAGLE",
        MANAGER,
        "        if self.drop_last_hit and blocks:\n",
        "        if self.drop_last_hit is None and blocks:\n",
    ),
    Mutant(
        "the whole length is that of the prompt",
        MANAGER,
        "            num_full = self._num_blocks(min(request.num_tokens, self.max_model_len))\n",
        "            num_full = self._num_blocks(request.num_prompt_tokens)\n",
    ),
    Mutant(
        "lookahead slots past max_model_len",
        MANAGER,
        "self._num_blocks(min(num_slots, self.max_model_len))",
        "self._num_blocks(num_slots)",
    ),
    Mutant(
        "drafts are hashed before they are accepted",
        MANAGER,
        "            self.cache_blocks(request, min(num_computed + "
        "num_new_tokens, request.num_tokens))\n",
        "            self.cache_blocks(request, num_computed + num_new_tokens)\n",
    ),
    Mutant(
        "blocks become findable a step late",
        MANAGER,
        "            self.cache_blocks(request, min(num_computed + "
        "num_new_tokens, request.num_tokens))\n",
        "            self.cache_blocks(request, min(num_computed, request.num_tokens))\n",
    ),
    Mutant(
        "a request's first block is reused first",
        MANAGER,
        "self.block_pool.free_blocks(reversed(request.blocks))",
        "self.block_pool.free_blocks(request.blocks)",
    ),
    Mutant(
        "blocks without a hash are freed to the back",
        POOL,
        "            self._free.move_to_end(block, last=False)\n",
        "            self._free.move_to_end(block)\n",
    ),
    Mutant(
        "blocks with a hash are freed to the front",
        POOL,
        "            if self._block_hash[block] is None:\n                unhashed",
        "            if self.ref_cnt[block] == 0:\n                unhashed",
    ),
    Mutant(
        "a lookup gives the block cached last",
        POOL,
        "return next(iter(blocks)) if blocks else None",
        "return next(reversed(blocks)) if blocks else None",
    ),
    Mutant(
        "blocks of equal hash are cached once",
        POOL,
        "            self._block_hash[block] = block_hash\n            self._cached",
        "            if block_hash in self._cached:\n                continue\n"
        "            self._block_hash[block] = block_hash\n            self._cached",
    ),
    Mutant(
        "the adapter is not part of the hash",
        HASH,
        "        prefix = lora_id  #",
        "        prefix = 0  #",
    ),
    Mutant(
        "hashes are not chained",
        HASH,
        "            base = _piece_base(prefix, segment_id)\n",
        "            base = _piece_base(0, segment_id)\n",
    ),
    # Queues
    Mutant(
        "PRIORITY ignores arrival",
        QUEUE,
        "return (request.priority, request.arrival_time, request.request_id)",
        "return (request.priority, 0.0, request.request_id)",
    ),
    Mutant(
        "PRIORITY ignores priority",
        QUEUE,
        "return (request.priority, request.arrival_time, request.request_id)",
        "return (0, request.arrival_time, request.request_id)",
    ),
    Mutant(
        "PRIORITY breaks ties by the larger id",
        QUEUE,
        "return (request.priority, request.arrival_time, request.request_id)",
        "return (request.priority, request.arrival_time, [-ord(c) for c in request.request_id])",
    ),
    Mutant(
        "several put back in reverse",
        QUEUE,
        "self._queue.extendleft(reversed(list(requests)))",
        "self._queue.extendleft(requests)",
    ),
    # The KV cache as a ledger (replayed with it)
    Mutant(
        "ledger: a request's first run is freed first",
        LEDGER,
        "            for run in reversed(holding.split_runs()):\n",
        "            for run in holding.split_runs():\n",
    ),
    Mutant(
        "ledger: cached blocks are reused before others",
        LEDGER,
        "        num_plain = min(num_blocks, self._num_plain)\n",
        "        num_plain = max(num_blocks - self._num_queued, 0)\n",
    ),
    Mutant(
        "ledger: the newest free run is reused first",
        LEDGER,
        "            run = self._queue.newer\n",
        "            run = self._queue.older\n",
    ),
    Mutant(
        "ledger: free hits do not count against the free blocks",
        LEDGER,
        "for run, lo, hi in hits.extents if run.ref_cnt == 0)",
        "for run, lo, hi in hits.extents if run.ref_cnt < 0)",
    ),
    Mutant(
        "ledger: the EAGLE drop takes a whole run",
        LEDGER,
        "            if hi - lo > 1:\n",
        "            if hi - lo < 1:\n",
    ),
]
