"""Choices, and nothing but choices: queue order, preemption victim, routing."""

from policies.errors import PolicyError
from policies.registry import builtin_routers, make_router
from policies.router import FunctionRouter, Router, check_choice
from policies.views import ReplicaSnapshot, ReplicaView, RequestSnapshot, RequestView

__all__ = [
    "FunctionRouter",
    "PolicyError",
    "ReplicaSnapshot",
    "ReplicaView",
    "RequestSnapshot",
    "RequestView",
    "Router",
    "builtin_routers",
    "check_choice",
    "make_router",
]
