"""Queue policies in a run: what they may see of a request, and the schedulers that they order."""

from __future__ import annotations

import math
from typing import cast

import numpy as np

from policies import make_queue_policy
from sim.config.resolved import EngineConfig
from sim.scheduler.config import CacheConfig, SchedulerConfig
from sim.scheduler.policy_order import PolicyOrder
from sim.scheduler.policy_scheduler import PolicyScheduler, create_policy_scheduler
from sim.scheduler.request import Request
from sim.sim_request import SimRequest
from traces import Trace


class LiveQueuedRequest:
    """A `policies.QueuedRequestView` that reads the request when asked."""

    __slots__ = ("__request",)

    def __init__(self, request: SimRequest) -> None:
        self.__request = request

    @property
    def request_id(self) -> int:
        """Position in the trace."""
        return self.__request.row_id

    @property
    def arrival_s(self) -> float:
        """Arrival, in seconds from the trace's zero."""
        return self.__request.arrival_time

    @property
    def num_prompt_tokens(self) -> int:
        """Prompt length."""
        return self.__request.num_prompt_tokens

    @property
    def priority(self) -> int:
        """Smaller is more urgent."""
        return self.__request.priority

    @property
    def tenant(self) -> str | None:
        """Who sent it."""
        return self.__request.tenant

    @property
    def num_served_tokens(self) -> int:
        """Prompt tokens computed or found in the cache, and tokens that it was given."""
        request = self.__request
        num_done = request.num_scheduled_tokens + request.num_cached_tokens
        return min(num_done, request.num_prompt_tokens) + request.num_output_tokens

    @property
    def deadline_s(self) -> float:
        """Arrival plus the study's limit on TTFT; infinite without one."""
        return self.__request.deadline_s

    @property
    def predicted_output_tokens(self) -> float:
        """What the predictor says of its output length."""
        return self.__request.predicted_output_tokens


def _view(request: Request) -> LiveQueuedRequest:
    return LiveQueuedRequest(cast(SimRequest, request))


class PolicySchedulerFactory:
    """Makes schedulers in the order of `engine.queue_policy`, each with a policy of its own."""

    def __init__(self, engine: EngineConfig, *, leap: bool) -> None:
        assert engine.queue_policy is not None
        self._name = engine.queue_policy
        self._options = engine.policy_options
        self._leap = leap

    def __call__(self, config: SchedulerConfig, cache_config: CacheConfig) -> PolicyScheduler:
        """A scheduler with these options. Raises `PolicyError` if there is no such policy."""
        policy = make_queue_policy(self._name, self._options)
        order = PolicyOrder(policy, _view, self._name)
        return create_policy_scheduler(config, cache_config, order, leap=self._leap)


def predicted_lengths(
    trace: Trace, relative_error: float, rng: np.random.Generator
) -> dict[int, float]:
    """A predictor's output length of every request, by id: the true one times a random factor.

    The factor is lognormal with mean 1 and standard deviation `relative_error`, so predictions
    are right on average and off by that share; 0 is a perfect predictor. At least 1 token.
    """
    sigma = math.sqrt(math.log1p(relative_error**2))
    factors = np.exp(sigma * rng.standard_normal(len(trace)) - sigma**2 / 2)
    predicted = np.maximum(trace.num_output_tokens * factors, 1.0)
    return dict(zip(trace.request_id.tolist(), predicted.tolist(), strict=True))
