"""Orders of the waiting queues: first come first served, and vLLM's priority order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.scheduler.request import Request
from sim.scheduler.request_queue import create_request_queue, priority_key


def request(number: int, priority: int = 0, arrival_time: float = 0.0) -> Request:
    return Request(number, 1, 1, priority=priority, arrival_time=arrival_time)


requests = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from([0.0, 1.0])), min_size=1, max_size=12
).map(lambda rows: [request(i, *row) for i, row in enumerate(rows)])


def drain(queue) -> list[int]:
    order = []
    while queue:
        head = queue.peek_request()
        assert queue.pop_request() is head
        order.append(head.request_id)
    return order


@given(requests, st.randoms())
def test_priority_order_is_total_and_does_not_depend_on_the_order_of_arrival(items, random):
    expected = [r.request_id for r in sorted(items, key=priority_key)]
    random.shuffle(items)
    queue = create_request_queue("priority")
    for item in items:
        random.choice([queue.add_request, queue.prepend_request])(item)
    assert [r.request_id for r in queue] == expected
    assert drain(queue) == expected


def test_priority_then_arrival_then_id():
    items = [request(3, 1, 0.0), request(2, 0, 5.0), request(1, 0, 2.0), request(0, 0, 5.0)]
    queue = create_request_queue("priority")
    queue.prepend_requests(items)
    assert drain(queue) == [1, 0, 2, 3]


def test_fcfs_ignores_priority_and_puts_back_at_the_head():
    queue = create_request_queue("fcfs")
    for number, priority in ((1, 9), (2, 0)):
        queue.add_request(request(number, priority))
    queue.prepend_request(request(3))
    queue.prepend_requests([request(4), request(5)])
    assert drain(queue) == [4, 5, 3, 1, 2]


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
@given(items=requests, data=st.data())
def test_removing_one_leaves_the_others_in_order(policy, items, data):
    queue = create_request_queue(policy)
    for item in items:
        queue.add_request(item)
    before = [r.request_id for r in queue]
    gone = data.draw(st.sampled_from(items))
    queue.remove_request(gone)
    queue.remove_request(request(99))  # not there: nothing happens
    assert len(queue) == len(items) - 1
    assert drain(queue) == [number for number in before if number != gone.request_id]
