"""One contract over every router, and what each built-in one is for."""

from collections.abc import Sequence
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest

import policies
from policies import ReplicaSnapshot, ReplicaView, RequestSnapshot, RequestView, registry

USER_MODULE = """
class Last:
    def route(self, request, replicas):
        return replicas[-1].replica_id

class Drawn:
    def __init__(self, rng):
        self.rng = rng
    def route(self, request, replicas):
        return int(self.rng.integers(len(replicas)))

def by_length(request, replicas):
    return request.num_prompt_tokens % len(replicas)

def one_argument(request):
    return 0

class NoRoute:
    pass

class Demanding:
    def __init__(self, threshold):
        pass

NUMBER = 3
"""

CONTRACT = [
    "round-robin",
    "random",
    "least-outstanding-requests",
    "least-outstanding-tokens",
    "my_routers:Last",
    "my_routers:Drawn",
    "my_routers:by_length",
]


@pytest.fixture(autouse=True)
def user_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_routers.py").write_text(USER_MODULE)
    (tmp_path / "my_broken.py").write_text("raise RuntimeError('no licence')\n")
    monkeypatch.syspath_prepend(str(tmp_path))


def stream(seed: int = 0) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


def request(number: int, num_prompt_tokens: int = 100) -> RequestSnapshot:
    return RequestSnapshot(number, float(number), num_prompt_tokens)


def random_loads(seed: int, num_replicas: int) -> list[ReplicaSnapshot]:
    counts = stream(seed).integers(0, 4, size=(num_replicas, 4))
    return [ReplicaSnapshot(i, *(int(c) for c in row)) for i, row in enumerate(counts)]


def choices(name: str, num_replicas: int, num_requests: int = 60) -> list[int]:
    router = policies.make_router(name, stream())
    return [
        router.route(request(i, i * 37 + 1), random_loads(i, num_replicas))
        for i in range(num_requests)
    ]


def test_every_builtin_router_is_in_the_contract() -> None:
    assert set(policies.builtin_routers()) <= set(CONTRACT)


@pytest.mark.parametrize("name", CONTRACT)
@pytest.mark.parametrize("num_replicas", [1, 2, 7])
def test_choice_is_the_id_of_a_given_replica(name: str, num_replicas: int) -> None:
    for choice in choices(name, num_replicas):
        replicas = random_loads(0, num_replicas)
        assert policies.check_choice(name, choice, replicas) == choice


@pytest.mark.parametrize("name", CONTRACT)
def test_same_stream_and_loads_give_the_same_choices(name: str) -> None:
    assert choices(name, 5) == choices(name, 5)


@pytest.mark.parametrize("name", CONTRACT)
def test_each_instance_starts_afresh(name: str) -> None:
    used = policies.make_router(name, stream())
    used.route(request(0), random_loads(0, 3))
    fresh = policies.make_router(name, stream())
    other = policies.make_router(name, stream())
    loads = random_loads(1, 3)
    assert fresh.route(request(1), loads) == other.route(request(1), loads)


@pytest.mark.parametrize("name", CONTRACT)
def test_a_policy_can_read_no_true_output_length(name: str) -> None:
    """The views given here have only the declared fields, so reading another one would raise."""
    for view in (RequestView, ReplicaView):
        assert not [f for f in vars(view) if "output" in f]
    choices(name, 3)


def test_round_robin_takes_turns() -> None:
    assert choices("round-robin", 3, 7) == [0, 1, 2, 0, 1, 2, 0]


def test_random_is_uniform_and_blind_to_load() -> None:
    """Chi-squared with 3 degrees of freedom exceeds 16.27 once in a thousand."""
    router = policies.make_router("random", stream(5))
    loads = [ReplicaSnapshot(i, num_outstanding_requests=i * 100) for i in range(4)]
    drawn = [router.route(request(i), loads) for i in range(4000)]
    counts = np.bincount(drawn, minlength=4)
    assert float(((counts - 1000) ** 2 / 1000).sum()) < 16.27


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("least-outstanding-requests", "num_outstanding_requests"),
        ("least-outstanding-tokens", "num_outstanding_tokens"),
    ],
)
@pytest.mark.parametrize(
    ("loads", "chosen"), [([3, 1, 2], 1), ([2, 1, 1], 1), ([0, 0, 0], 0), ([5, 4, 0], 2)]
)
def test_least_outstanding_takes_the_least_and_the_smaller_id_of_equals(
    name: str, field: str, loads: Sequence[int], chosen: int
) -> None:
    replicas = [ReplicaSnapshot(i, **{field: load}) for i, load in enumerate(loads)]
    assert policies.make_router(name, stream()).route(request(0), replicas) == chosen


def test_least_outstanding_counts_what_its_name_says() -> None:
    few_long = ReplicaSnapshot(0, num_outstanding_requests=1, num_outstanding_tokens=9000)
    many_short = ReplicaSnapshot(1, num_outstanding_requests=5, num_outstanding_tokens=50)
    replicas = [few_long, many_short]
    by_requests = policies.make_router("least-outstanding-requests", stream())
    by_tokens = policies.make_router("least-outstanding-tokens", stream())
    assert by_requests.route(request(0), replicas) == 0
    assert by_tokens.route(request(0), replicas) == 1


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("rond-robin", "unknown router 'rond-robin'; did you mean 'round-robin'?"),
        ("LEAST", "known: least-outstanding-requests, least-outstanding-tokens, random"),
        ("my_routers:Lst", "has no 'Lst'; did you mean 'Last'?"),
        ("no_such_module:Router", "module 'no_such_module' can't be imported"),
        ("my_broken:Router", "can't be imported: no licence"),
        ("my_routers:one_argument", "is not a router: it must be a class with route"),
        ("my_routers:NoRoute", "is not a router"),
        ("my_routers:NUMBER", "is not a router"),
        ("my_routers:Demanding", "its only argument may be 'rng'"),
        (":", "can't be imported"),
    ],
)
def test_what_is_not_a_router_is_refused_by_name(name: str, said: str) -> None:
    with pytest.raises(policies.PolicyError) as refused:
        policies.make_router(name, stream())
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("choice", [3, -1, 1.0, None, "0", True])
def test_a_choice_out_of_range_names_router_and_ids(choice: object) -> None:
    replicas = [ReplicaSnapshot(0), ReplicaSnapshot(1), ReplicaSnapshot(2)]
    with pytest.raises(policies.PolicyError, match=r"router 'mine:R' returned .*\(0, 1, 2\)"):
        policies.check_choice("mine:R", choice, replicas)


def test_installed_entry_points_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def installed(group: str) -> list[EntryPoint]:
        assert group == "headway.policies"
        return [
            EntryPoint("theirs", "my_routers:Last", group),
            EntryPoint("lost", "my_routers:Gone", group),
        ]

    monkeypatch.setattr(registry, "entry_points", installed)
    router = policies.make_router("theirs", stream())
    assert router.route(request(0), random_loads(0, 4)) == 3
    with pytest.raises(policies.PolicyError, match=r"'lost' .*can't be loaded"):
        policies.make_router("lost", stream())
