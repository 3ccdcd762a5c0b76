"""Queue policies as they are found, and the keys that each gives."""

from importlib.metadata import EntryPoint
from math import inf
from pathlib import Path

import pytest

import policies
from policies import QueuedRequestSnapshot, QueuedRequestView, registry
from policies.queueing.multi_level_feedback import MultiLevelFeedbackPolicy
from policies.queueing.virtual_token_counter import VirtualTokenCounterPolicy

USER_MODULE = """
class Longest:
    def __init__(self, weight=1):
        self.weight = weight
    def key(self, request):
        return (-self.weight * request.num_prompt_tokens,)

def by_priority(request):
    return (request.priority,)

class NoKey:
    pass

def two(a, b):
    return ()
"""
BUILT_IN = policies.builtin_queue_policies()


@pytest.fixture(autouse=True)
def user_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_queue.py").write_text(USER_MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))


def request(number: int = 0, **fields: object) -> QueuedRequestSnapshot:
    return QueuedRequestSnapshot(
        **{"request_id": number, "arrival_s": 0.0, "num_prompt_tokens": 100, **fields}
    )


def test_the_view_has_no_true_output_length() -> None:
    outputs = [name for name in vars(QueuedRequestView) if "output" in name or "max" in name]
    assert outputs == ["predicted_output_tokens"]


@pytest.mark.parametrize("name", [*BUILT_IN, "my_queue:Longest", "my_queue:by_priority"])
def test_keys_are_tuples_of_numbers_and_the_same_for_the_same_view(name: str) -> None:
    views = [request(i, num_prompt_tokens=10 * i + 1, tenant=str(i % 2)) for i in range(20)]
    first, second = (policies.make_queue_policy(name) for _ in range(2))
    keys = [first.key(view) for view in views]
    assert keys == [second.key(view) for view in views]
    assert {len(key) for key in keys} == {1}
    assert all(number == number for key in keys for number in key)


def test_each_key_is_what_the_name_says() -> None:
    def key(name: str, view: QueuedRequestSnapshot, **options: object) -> tuple[float, ...]:
        return policies.make_queue_policy(name, options).key(view)

    assert key("shortest-prompt", request(num_prompt_tokens=7)) == (7,)
    assert key("shortest-predicted", request(predicted_output_tokens=3.5)) == (3.5,)
    assert key("earliest-deadline", request(deadline_s=4.0)) == (4.0,)
    assert key("earliest-deadline", request()) == (inf,)
    urgent = request(arrival_s=2.0, priority=1, deadline_s=9.0)
    assert key("earliest-deadline", urgent, ttft_s={1: 0.5}) == (2.5,)
    assert key("earliest-deadline", urgent, ttft_s={"1": 0.5}) == (2.5,)
    assert key("earliest-deadline", urgent, ttft_s={0: 0.5}) == (9.0,)


@pytest.mark.parametrize(
    ("num_prompt_tokens", "num_served_tokens", "level"),
    # Quanta 10, 20, 40: levels end after 10, 30 and 70 tokens, or begin where the prompt fits.
    [
        *[(5, 0, 0), (5, 10, 0), (5, 11, 1), (5, 30, 1), (5, 31, 2), (5, 999, 2)],
        *[(11, 0, 1), (11, 20, 1), (11, 21, 2), (41, 0, 2), (4000, 0, 2)],
    ],
)
def test_levels_are_skipped_by_the_prompt_and_fallen_through_by_service(
    num_prompt_tokens: int, num_served_tokens: int, level: int
) -> None:
    policy = MultiLevelFeedbackPolicy(quantum_tokens=10, ratio=2, num_levels=3)
    view = request(num_prompt_tokens=num_prompt_tokens, num_served_tokens=num_served_tokens)
    assert policy.level(view) == level
    assert policy.key(view)[0] == level


def test_a_tenant_is_charged_prompts_once_and_outputs_by_weight() -> None:
    policy = VirtualTokenCounterPolicy(prompt_weight=1, output_weight=2)
    view = request(tenant="a")
    policy.joined(view, is_new=True)
    policy.admitted(view, is_new=True)
    policy.emitted(view, 3)
    policy.joined(view, is_new=False)
    policy.admitted(view, is_new=False)
    assert policy.counter("a") == 100 + 2 * 3


def test_a_tenant_that_comes_back_has_no_credit_for_the_time_away() -> None:
    """Algorithm 2 of the paper: lifted to the least counter of those that wait, or else to that
    of the tenant whose request left the queue last."""
    policy = VirtualTokenCounterPolicy()
    busy, waits, comes, later = (request(i, tenant=t) for i, t in enumerate("aabc"))
    for view in (busy, waits):
        policy.joined(view, is_new=True)
    policy.admitted(busy, is_new=True)
    policy.joined(comes, is_new=True)
    assert policy.counter("b") == policy.counter("a") == 100
    for view in (waits, comes):
        policy.admitted(view, is_new=True)
    policy.emitted(comes, 50)
    policy.joined(later, is_new=True)
    assert policy.counter("c") == policy.counter("b") == 300


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        (
            "shortest-promt",
            {},
            "scheduling policy 'shortest-promt'; did you mean 'shortest-prompt'",
        ),
        ("sjf", {}, "known: earliest-deadline, fcfs, multi-level-feedback, priority"),
        ("my_queue:Long", {}, "has no 'Long'; did you mean 'Longest'?"),
        ("my_queue:NoKey", {}, "is not a scheduling policy: it must be a class with key(request)"),
        ("my_queue:two", {}, "is not a scheduling policy"),
        ("my_queue:by_priority", {"x": 1}, "is a function and has no options"),
        ("my_queue:Longest", {"wait": 1}, "no option 'wait'; did you mean 'weight'?"),
        ("shortest-prompt", {"x": 1}, "has no option 'x'; its options: none"),
        ("multi-level-feedback", {"ratio": 1}, "ratio is 1; it must be a number above 1"),
        ("multi-level-feedback", {"num_levels": 0}, "num_levels is 0"),
        ("multi-level-feedback", {"num_levels": 10**9}, "it must be at most 1000"),
        ("multi-level-feedback", {"quantum_tokens": 1.5}, "quantum_tokens is 1.5"),
        ("virtual-token-counter", {"prompt_weight": -1}, "prompt_weight is -1"),
        ("virtual-token-counter", {"prompt_weight": 0, "output_weight": 0}, "both 0"),
        ("earliest-deadline", {"ttft_s": 3}, "it must map priorities to seconds"),
        ("earliest-deadline", {"ttft_s": {0: 0}}, "0 for priority 0 must be above 0"),
        ("earliest-deadline", {"ttft_s": {"a": 1}}, "priority 'a' must be a whole number"),
    ],
)
def test_what_is_not_a_policy_or_an_option_is_refused_by_name(
    name: str, options: dict[str, object], said: str
) -> None:
    with pytest.raises(policies.PolicyError) as refused:
        policies.make_queue_policy(name, options)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_options_reach_a_class_of_ones_own() -> None:
    policy = policies.make_queue_policy("my_queue:Longest", {"weight": 2})
    assert policy.key(request()) == (-200,)


def test_installed_entry_points_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def installed(group: str) -> list[EntryPoint]:
        return [EntryPoint("theirs", "my_queue:Longest", group)]

    monkeypatch.setattr(registry, "entry_points", installed)
    assert policies.make_queue_policy("theirs").key(request()) == (-100,)


def test_only_policies_whose_order_stands_still_can_be_leapt_over() -> None:
    can = {name for name in BUILT_IN if policies.can_leap(policies.make_queue_policy(name))}
    assert can == {"shortest-prompt", "shortest-predicted", "earliest-deadline"}
