"""Finding a policy by its name.

Three ways, tried in this order: a built-in name, an entry point of the group `headway.policies`,
and `module:name` (for a router a class with `route(request, replicas)` or a function of the same
two; for a queue policy see `queue_registry`).
"""

import difflib
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterable
from importlib.metadata import EntryPoint, entry_points

import numpy as np

from policies import routers
from policies.errors import PolicyError
from policies.router import FunctionRouter, Router

ENTRY_POINT_GROUP = "headway.policies"
WHAT_A_ROUTER_IS = "a class with route(request, replicas), or a function of request and replicas"


def builtin_routers() -> tuple[str, ...]:
    """Names of the built-in routers, sorted."""
    return tuple(sorted(m.name.replace("_", "-") for m in pkgutil.iter_modules(routers.__path__)))


def make_router(name: str, rng: np.random.Generator) -> Router:
    """Make a fresh router for one run.

    Args:
        name: a built-in name, an entry point's name, or `module:name`.
        rng: the stream that the router may draw from.

    Raises:
        PolicyError: nothing of this name, or it is not a router.
    """
    if name in builtin_routers():
        module = importlib.import_module(f"{routers.__name__}.{name.replace('-', '_')}")
        built: Router = module.build(rng)
        return built
    return _instantiate(name, load_user_policy("router", name, builtin_routers()), rng)


def load_user_policy(kind: str, name: str, builtin: Iterable[str]) -> object:
    """Load what an entry point or `module:name` stands for; `kind` is the word for messages.

    Raises:
        PolicyError: nothing of this name, or it can't be imported.
    """
    installed = {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}
    if name in installed:
        return _load_entry_point(kind, installed[name])
    if ":" in name:
        return _load_module_name(kind, name)
    raise PolicyError(_unknown(kind, name, [*builtin, *installed]))


def _load_entry_point(kind: str, point: EntryPoint) -> object:
    try:
        return point.load()
    except Exception as error:  # a user's module may raise anything while it is imported
        raise PolicyError(
            f"{kind} {point.name!r} (entry point {point.value!r}) can't be loaded: {error}"
        ) from error


def _load_module_name(kind: str, name: str) -> object:
    module_name, _, attribute = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # a user's module may raise anything while it is imported
        raise PolicyError(
            f"{kind} {name!r}: module {module_name!r} can't be imported: {error}"
        ) from error
    if not hasattr(module, attribute):
        hint = nearest(attribute, [n for n in vars(module) if not n.startswith("_")])
        raise PolicyError(f"{kind} {name!r}: module {module_name!r} has no {attribute!r}{hint}")
    loaded: object = getattr(module, attribute)
    return loaded


def _instantiate(name: str, loaded: object, rng: np.random.Generator) -> Router:
    """Make a router of what was loaded: build a class (with `rng` if it asks), wrap a function."""
    if inspect.isclass(loaded):
        router = _build_class(name, loaded, rng)
        if callable(getattr(router, "route", None)):
            return router
    elif inspect.isfunction(loaded) and takes(loaded, 2):
        return FunctionRouter(loaded)
    raise PolicyError(f"router {name!r} is not a router: it must be {WHAT_A_ROUTER_IS}")


def _build_class(name: str, loaded: type, rng: np.random.Generator) -> Router:
    wants_rng = "rng" in inspect.signature(loaded).parameters
    try:
        built: Router = loaded(rng=rng) if wants_rng else loaded()
    except TypeError as error:
        raise PolicyError(
            f"router {name!r} can't be built: {error}; its only argument may be 'rng'"
        ) from error
    return built


def takes(function: Callable[..., object], num_arguments: int) -> bool:
    """Whether a function can be called with that many positional arguments."""
    try:
        inspect.signature(function).bind(*[None] * num_arguments)
    except TypeError:
        return False
    return True


def _unknown(kind: str, name: str, known: list[str]) -> str:
    return (
        f"unknown {kind} {name!r}{nearest(name, known)}; "
        f"known: {', '.join(sorted(known))}, or module:name of your own"
    )


def nearest(name: str, known: Iterable[str]) -> str:
    """The hint at a known name like this one; empty if none is."""
    near = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else ""
