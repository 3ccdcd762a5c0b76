"""A victim that its step had scheduled gives back its tokens and its drafter's rows."""

from sim.scheduler.config import CacheConfig, SchedulerConfig
from sim.scheduler.kv_cache_manager import KVCacheManager
from sim.scheduler.request import Request
from sim.scheduler.scheduler import Scheduler


class RefusesOnce(KVCacheManager):
    """Has no block for one request, once."""

    refused = ""

    def allocate_slots(self, request, *args, **options):
        if request.request_id == self.refused:
            self.refused = ""
            return None
        return super().allocate_slots(request, *args, **options)


def test_both_budgets_are_refunded():
    """Three requests of 1 + 3 tokens and 3 drafter rows each, in a step of 14 rows: two fit."""
    config = SchedulerConfig(
        max_num_seqs=3,
        max_num_batched_tokens=14,
        policy="priority",
        num_speculative_tokens=3,
        max_num_new_slots_for_drafting=3,
    )
    cache = CacheConfig(100)
    manager = RefusesOnce(cache, config)
    scheduler = Scheduler(config, cache, manager)
    for number, (request_id, priority) in enumerate([("a", 5), ("b", 0), ("c", 0)]):
        scheduler.add_request(
            Request(request_id, 2, 50, arrival_time=float(number), priority=priority)
        )
        output = scheduler.schedule()
        scheduler.update_from_output(output, dict.fromkeys(output.sampling_req_ids, 1))
    scheduler.update_draft_token_ids(dict.fromkeys("abc", 3))
    manager.refused = "b"
    output = scheduler.schedule()
    assert output.preempted_req_ids == ["a"]
    assert output.num_scheduled_tokens == {"b": 4, "c": 4}
    assert output.scheduled_spec_decode_tokens == {"b": 3, "c": 3}
