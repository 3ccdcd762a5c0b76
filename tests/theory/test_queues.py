"""Where queueing theory has the answer, the simulation gives it.

A replica that serves one request at a time (`max_num_seqs=1`), in steps of equal length, is a
queue with one server. Its service time is the number of a request's steps: one for the prompt and
each further output token. The bands are 4 standard errors of independent runs.
"""

from __future__ import annotations

from heapq import heapreplace
from math import sqrt

import numpy as np
import pytest

from calibration import ConstantCost
from sim.metrics import queue_time_s
from sim.rng import Streams
from sim.run_result import RunResult
from sim.scheduler.config import CacheConfig, SchedulerConfig
from sim.simulation import simulate
from tests.sim.small_study import make_study
from traces import RequestSpec

STEP_S = 0.01
NUM_RUNS = 16


def one_server_run(
    arrivals_s: np.ndarray, num_output_tokens: np.ndarray, *, num_seats: int = 1
) -> RunResult:
    requests = [
        RequestSpec(i, float(arrival_s), 8, int(num_tokens))
        for i, (arrival_s, num_tokens) in enumerate(zip(arrivals_s, num_output_tokens, strict=True))
    ]
    scheduler = SchedulerConfig(max_num_seqs=num_seats, max_model_len=100_000)
    cache = CacheConfig(10_000, enable_prefix_caching=False)
    return simulate(make_study(requests, scheduler, cache, ConstantCost(STEP_S)))


def poisson_s(run: int, num_requests: int, rate_per_s: float) -> np.ndarray:
    rng = Streams(run).rng("arrivals")
    return np.cumsum(rng.exponential(1 / rate_per_s, num_requests))


def band(means: list[float]) -> tuple[float, float]:
    """Mean of independent runs, and 4 standard errors of it."""
    return float(np.mean(means)), 4 * float(np.std(means, ddof=1)) / sqrt(len(means))


@pytest.mark.parametrize("load", [0.3, 0.8])
def test_m_d_1_waiting_time(load: float) -> None:
    """Constant service: W = rho s / (2 (1 - rho)) (Pollaczek-Khinchine)."""
    num_requests = 2000
    means = []
    for run in range(NUM_RUNS):
        arrivals_s = poisson_s(run, num_requests, load / STEP_S)
        result = one_server_run(arrivals_s, np.ones(num_requests))
        # The queue starts empty; its memory is a few busy periods long.
        means.append(float(queue_time_s(result.requests)[num_requests // 5 :].mean()))
    mean, error = band(means)
    expected = load * STEP_S / (2 * (1 - load))
    assert abs(mean - expected) <= error
    assert error < 0.4 * expected


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_m_m_1_waiting_time(load: float) -> None:
    """Geometric service, exponential's counterpart in steps: Pollaczek-Khinchine with its moments.

    With 100 steps on average it lies within 1 % of M/M/1's rho / (mu - lambda).
    """
    num_requests, mean_tokens = 1500, 100
    means = []
    for run in range(NUM_RUNS):
        rng = Streams(run).rng("lengths")
        tokens = rng.geometric(1 / mean_tokens, num_requests)
        arrivals_s = poisson_s(run, num_requests, load / (mean_tokens * STEP_S))
        result = one_server_run(arrivals_s, tokens)
        means.append(float(queue_time_s(result.requests)[num_requests // 5 :].mean()))
    mean, error = band(means)
    p = 1 / mean_tokens
    rate, second_moment = load / (mean_tokens * STEP_S), (2 - p) / p**2 * STEP_S**2
    expected = rate * second_moment / (2 * (1 - load))
    m_m_1 = load / (1 / (mean_tokens * STEP_S) - rate)
    assert expected == pytest.approx(m_m_1, rel=0.01)
    assert abs(mean - expected) <= error
    assert error < 0.5 * expected


def waits_with_servers(
    num_servers: int, arrivals_s: np.ndarray, services_s: np.ndarray
) -> np.ndarray:
    """Waits in a G/G/k queue, first come first served (Kiefer & Wolfowitz 1955)."""
    free_s = [0.0] * num_servers  # a heap: when each server is free again
    starts_s = []
    for arrival_s, service_s in zip(arrivals_s.tolist(), services_s.tolist(), strict=True):
        starts_s.append(max(arrival_s, free_s[0]))
        heapreplace(free_s, starts_s[-1] + service_s)
    return np.array(starts_s) - arrivals_s


@pytest.mark.parametrize("num_seats", [1, 4, 16])
@pytest.mark.parametrize("load", [0.3, 0.8, 1.1])
def test_m_m_k_waiting_times(num_seats: int, load: float) -> None:
    """A replica with k seats whose steps take as long whatever is in them has k servers.

    Request by request: a free seat is taken at the next step, less than a step later than a server
    would be, and a delay of that length in every arrival delays no start by more (waits are
    monotone in the arrivals).
    """
    num_requests, mean_tokens = 800, 50
    tokens = Streams(num_seats).rng("lengths").geometric(1 / mean_tokens, num_requests)
    services_s = tokens * STEP_S
    arrivals_s = poisson_s(1, num_requests, num_seats * load / (mean_tokens * STEP_S))
    found_s = queue_time_s(one_server_run(arrivals_s, tokens, num_seats=num_seats).requests)
    expected_s = waits_with_servers(num_seats, arrivals_s - arrivals_s[0], services_s)
    extra_s = found_s - expected_s
    assert extra_s.min() >= -1e-9
    assert extra_s.max() <= STEP_S + 1e-9
    if load > 0.5:
        assert expected_s.mean() > 2 * STEP_S  # there are waits to compare


def test_several_replicas_share_one_queue_less_well_than_m_d_k() -> None:
    """Round robin over two servers is two separate queues with Erlang-2 arrivals: shorter waits
    than two M/D/1 queues of the same load, which random routing gives."""
    num_requests, load = 2000, 0.8
    waits: dict[str, list[float]] = {"round-robin": [], "random": []}
    for run in range(NUM_RUNS):
        arrivals_s = poisson_s(run, num_requests, 2 * load / STEP_S)
        requests = [RequestSpec(i, float(t), 8, 1) for i, t in enumerate(arrivals_s)]
        for router, means in waits.items():
            scheduler = SchedulerConfig(max_num_seqs=1)
            study = make_study(
                requests,
                scheduler,
                CacheConfig(1000, enable_prefix_caching=False),
                ConstantCost(STEP_S),
                num_replicas=2,
                router=router,
            )
            result = simulate(study)
            means.append(float(queue_time_s(result.requests)[num_requests // 5 :].mean()))
    random_mean, error = band(waits["random"])
    assert abs(random_mean - load * STEP_S / (2 * (1 - load))) <= error
    difference, error = band([r - b for r, b in zip(*waits.values(), strict=True)])
    assert difference + error < 0
