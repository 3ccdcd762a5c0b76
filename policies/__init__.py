"""Choices, and nothing but choices: queue order, preemption victim, routing."""

from policies.errors import PolicyError, failed
from policies.queue_policy import (
    FunctionQueuePolicy,
    Key,
    LevelledPolicy,
    QueuedRequestSnapshot,
    QueuedRequestView,
    QueuePolicy,
    TrackingPolicy,
    can_leap,
)
from policies.queue_registry import VLLM_POLICIES, builtin_queue_policies, make_queue_policy
from policies.registry import builtin_routers, make_router
from policies.router import FunctionRouter, Router, check_choice
from policies.views import ReplicaSnapshot, ReplicaView, RequestSnapshot, RequestView

__all__ = [
    "VLLM_POLICIES",
    "FunctionQueuePolicy",
    "FunctionRouter",
    "Key",
    "LevelledPolicy",
    "PolicyError",
    "QueuePolicy",
    "QueuedRequestSnapshot",
    "QueuedRequestView",
    "ReplicaSnapshot",
    "ReplicaView",
    "RequestSnapshot",
    "RequestView",
    "Router",
    "TrackingPolicy",
    "builtin_queue_policies",
    "builtin_routers",
    "can_leap",
    "check_choice",
    "failed",
    "make_queue_policy",
    "make_router",
]
