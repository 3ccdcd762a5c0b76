"""Finding a queue policy by its name: built-in, entry point of `headway.policies`, `module:name`.

A policy of one's own is a class with `key(request)`, made with the options as keyword arguments,
or a function of the request that returns its key.
"""

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from typing import Any

from policies import queueing
from policies.errors import PolicyError
from policies.queue_policy import FunctionQueuePolicy, QueuePolicy
from policies.registry import load_user_policy, nearest, takes

VLLM_POLICIES = ("fcfs", "priority")
"""The two that the scheduler itself has; they are named here only for messages."""

_KIND = "scheduling policy"
_WHAT_IT_IS = "a class with key(request), or a function of a request"


def builtin_queue_policies() -> tuple[str, ...]:
    """Names of the built-in queue policies beside vLLM's own two, sorted."""
    return tuple(sorted(m.name.replace("_", "-") for m in pkgutil.iter_modules(queueing.__path__)))


def make_queue_policy(name: str, options: Mapping[str, Any] | None = None) -> QueuePolicy:
    """Make a fresh policy for one replica.

    Args:
        name: a built-in name, an entry point's name, or `module:name`.
        options: what it is made with.

    Raises:
        PolicyError: nothing of this name, it is not a queue policy, or an option is not right.
    """
    options = options or {}
    if name in builtin_queue_policies():
        module = importlib.import_module(f"{queueing.__name__}.{name.replace('-', '_')}")
        return _build(name, module.build, options)
    known = (*VLLM_POLICIES, *builtin_queue_policies())
    return _instantiate(name, load_user_policy(_KIND, name, known), options)


def _instantiate(name: str, loaded: object, options: Mapping[str, Any]) -> QueuePolicy:
    if inspect.isclass(loaded) and callable(getattr(loaded, "key", None)):
        return _build(name, loaded, options)
    if inspect.isfunction(loaded) and takes(loaded, 1):
        if options:
            raise PolicyError(f"{_KIND} {name!r} is a function and has no options")
        return FunctionQueuePolicy(loaded)
    raise PolicyError(f"{_KIND} {name!r} is not a scheduling policy: it must be {_WHAT_IT_IS}")


def _build(name: str, make: Callable[..., Any], options: Mapping[str, Any]) -> QueuePolicy:
    _check_options(name, make, options)
    try:
        built: QueuePolicy = make(**options)
    except PolicyError as error:
        raise PolicyError(f"{_KIND} {name!r}: {error}") from error
    except TypeError as error:
        raise PolicyError(f"{_KIND} {name!r} can't be made: {error}") from error
    return built


def _check_options(name: str, make: Callable[..., Any], options: Mapping[str, Any]) -> None:
    parameters = inspect.signature(make).parameters
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        return
    for option in options:
        if option not in parameters:
            known = ", ".join(parameters) or "none"
            raise PolicyError(
                f"{_KIND} {name!r} has no option {option!r}{nearest(option, parameters)}; "
                f"its options: {known}"
            )
