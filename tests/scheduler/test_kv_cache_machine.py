"""Both KV caches against a naive one, rule by rule, with the books checked after every rule."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sim.scheduler.block_hash import output_segment
from sim.scheduler.block_pool import BlockPool, BlockPoolError
from sim.scheduler.config import CacheConfig, SchedulerConfig
from sim.scheduler.kv_cache_manager import KVCacheManager
from sim.scheduler.kv_ledger import KVLedger
from sim.scheduler.request import Request, RequestStatus
from tests.scheduler.naive_kv import NaiveKV, NaiveRequest

MAX_LEN = 40
prompts = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 9)), min_size=1, max_size=3).map(
    tuple
)


class KVCacheMachine(RuleBasedStateMachine):
    """Requests wait, are admitted, grow, and leave, in any order that a scheduler might choose."""

    @initialize(
        num_blocks=st.integers(2, 14),
        block_size=st.integers(1, 4),
        eagle=st.booleans(),
        watermark=st.sampled_from([0.0, 0.2]),
    )
    def begin(self, num_blocks, block_size, eagle, watermark):
        config = SchedulerConfig(max_model_len=MAX_LEN, watermark=watermark, use_eagle=eagle)
        cache = CacheConfig(num_blocks, block_size)
        self.caches = [KVCacheManager(cache, config), KVLedger(cache, config)]
        self.naive = NaiveKV(num_blocks, block_size, eagle)
        self.keep_free = int(watermark * num_blocks)
        self.block_size = block_size
        self.requests: list[tuple[NaiveRequest, list[Request]]] = []

    def waiting(self):
        return [i for i, (naive, _) in enumerate(self.requests) if not naive.blocks]

    def running(self):
        return [i for i, (naive, _) in enumerate(self.requests) if naive.blocks]

    @rule(prompt=prompts, continues=st.booleans())
    def arrive(self, prompt, continues):
        request_id = len(self.requests)
        if continues and self.requests:
            prompt = (*prompt, (output_segment(request_id - 1), 3))
        num_tokens = sum(n for _, n in prompt)
        tokens = [(segment, i) for segment, n in prompt for i in range(n)]
        ours = [Request(request_id, num_tokens, MAX_LEN, prompt=prompt) for _ in self.caches]
        self.requests.append((NaiveRequest(tokens), ours))

    @precondition(lambda self: self.waiting())
    @rule(data=st.data(), whole=st.booleans(), others=st.booleans())
    def admit(self, data, whole, others):
        naive, ours = self.requests[data.draw(st.sampled_from(self.waiting()))]
        hits = self.naive.hits(naive)
        found = [
            cache.get_computed_blocks(request)
            for cache, request in zip(self.caches, ours, strict=True)
        ]
        assert [len(blocks) for blocks in found] == [len(hits)] * 2
        assert found[0] == hits
        num_new = data.draw(st.integers(1, len(naive.tokens) - len(hits) * self.block_size))
        done = self.naive.allocate(
            naive, num_new, hits, 0, whole, self.keep_free if others else 0, MAX_LEN
        )
        for cache, request, blocks in zip(self.caches, ours, found, strict=True):
            new = cache.allocate_slots(
                request,
                num_new,
                new_computed_blocks=blocks,
                full_sequence_must_fit=whole,
                has_scheduled_reqs=others,
            )
            assert (new is not None) == done
            if done:
                request.status = RequestStatus.RUNNING
                request.num_computed_tokens = len(hits) * self.block_size + num_new
        if done:
            naive.num_computed = len(hits) * self.block_size + num_new

    @precondition(lambda self: self.running())
    @rule(data=st.data(), lookahead=st.integers(0, 3))
    def step(self, data, lookahead):
        """The next piece of a prompt, or a decode that appends a token."""
        naive, ours = self.requests[data.draw(st.sampled_from(self.running()))]
        left = len(naive.tokens) - naive.num_computed
        if left == 0:
            if len(naive.tokens) == MAX_LEN:
                return
            naive.tokens.append((output_segment(ours[0].request_id), ours[0].num_output_tokens))
            for request in ours:
                request.num_output_tokens += 1
            left = 1
        num_new = data.draw(st.integers(1, left))
        done = self.naive.allocate(naive, num_new, [], lookahead, False, 0, MAX_LEN)
        for cache, request in zip(self.caches, ours, strict=True):
            new = cache.allocate_slots(request, num_new, num_lookahead_tokens=lookahead)
            assert (new is not None) == done
            request.num_computed_tokens += num_new if done else 0
        naive.num_computed += num_new if done else 0

    @precondition(lambda self: self.running())
    @rule(data=st.data(), num_drafts=st.integers(1, 3))
    def step_with_drafts(self, data, num_drafts):
        """Slots for drafts, all of which are then rejected; their blocks are kept."""
        naive, ours = self.requests[data.draw(st.sampled_from(self.running()))]
        if len(naive.tokens) != naive.num_computed + 1:
            return
        num_new = min(1 + num_drafts, MAX_LEN - naive.num_computed)
        done = self.naive.allocate(naive, num_new, [], 0, False, 0, MAX_LEN)
        for cache, request in zip(self.caches, ours, strict=True):
            assert (cache.allocate_slots(request, num_new) is not None) == done
            request.num_computed_tokens += int(done)
        naive.num_computed += int(done)

    @precondition(lambda self: self.running())
    @rule(data=st.data())
    def preempt(self, data):
        naive, ours = self.requests[data.draw(st.sampled_from(self.running()))]
        self.naive.release(naive)
        for cache, request in zip(self.caches, ours, strict=True):
            cache.free(request)
            request.status = RequestStatus.PREEMPTED
            request.num_computed_tokens = 0

    @invariant()
    def same_free_blocks_and_balanced_books(self):
        for index, cache in enumerate(getattr(self, "caches", ())):
            assert cache.num_free_blocks == len(self.naive.free)
            cache.check(ours[index] for _, ours in self.requests)

    @invariant()
    def the_manager_holds_the_very_blocks(self):
        for naive, ours in getattr(self, "requests", ()):
            assert self.caches[0].get_block_ids(ours[0]) == naive.blocks

    @invariant()
    def everyone_would_find_the_same(self):
        for naive, ours in getattr(self, "requests", ()):
            if not naive.blocks:
                assert self.caches[0].get_computed_blocks(ours[0]) == self.naive.hits(naive)
                assert len(self.caches[1].get_computed_blocks(ours[1])) == len(
                    self.naive.hits(naive)
                )


TestKVCacheMachine = KVCacheMachine.TestCase
TestKVCacheMachine.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


def test_a_pool_gives_no_more_than_it_has():
    pool = BlockPool(4, True)
    with pytest.raises(BlockPoolError, match="4 blocks asked for, 3 are free"):
        pool.get_new_blocks(4)


def test_the_null_block_is_never_given():
    pool = BlockPool(4, True)
    assert sorted(pool.get_new_blocks(3)) == [1, 2, 3]


def test_books_that_do_not_balance_are_found():
    pool = BlockPool(4, True)
    (block,) = pool.get_new_blocks(1)
    pool.ref_cnt[block] = 0
    with pytest.raises(
        BlockPoolError, match="3 blocks are held by nobody, 2 are in the free queue"
    ):
        pool.check()


def test_a_block_held_by_nobody_known_is_found():
    config = SchedulerConfig()
    manager = KVCacheManager(CacheConfig(4), config)
    request = Request(1, 20, 5)
    manager.allocate_slots(request, 20)
    manager.check([request])
    with pytest.raises(BlockPoolError, match="held by 0 requests"):
        manager.check([])
