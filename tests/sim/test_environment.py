"""Events at exact instants, and their order at one instant."""

import pytest

from sim.environment import ARRIVAL_RANK, LAST_S, Environment
from sim.errors import SimulationError


def test_an_instant_is_kept_exactly():
    env = Environment()
    env.at(0.1, ARRIVAL_RANK)
    env.step()
    env.at(0.3, ARRIVAL_RANK)
    env.step()
    assert env.now == 0.3  # 0.1 + (0.3 - 0.1) is not


def test_arrivals_come_first_then_the_replicas_by_rank():
    env = Environment()
    seen = []
    for rank in (2, ARRIVAL_RANK, 1):
        env.at(1.0, rank).callbacks = [lambda _, rank=rank: seen.append(rank)]
    env.run()
    assert seen == [0, 1, 2]


def test_an_arrival_set_by_a_replica_comes_after_the_turn_of_those_before_it():
    env = Environment()
    ranks = []

    def note(_):
        ranks.append(env.rank)

    def end_of_a_request(_):
        env.at(1.0, ARRIVAL_RANK).callbacks = [note]

    env.at(1.0, 3).callbacks = [end_of_a_request]
    env.at(2.0, 1).callbacks = [note]
    env.run()
    assert ranks == [3, 1]


def test_the_past_is_refused():
    env = Environment()
    env.at(1.0, ARRIVAL_RANK)
    env.step()
    with pytest.raises(ValueError, match="is past"):
        env.at(0.5, ARRIVAL_RANK)


def test_the_clock_ends_where_it_is_too_coarse():
    env = Environment()
    env.at(LAST_S, ARRIVAL_RANK)
    env.step()
    assert env.now == 1e9
    env.at(1.5e9, ARRIVAL_RANK)
    with pytest.raises(SimulationError, match=r"1\.5e\+09 s, beyond 1e\+09 s"):
        env.step()
