"""The error of this room."""

from __future__ import annotations

import traceback


class PolicyError(ValueError):
    """A policy that is unknown, can't be loaded, fails, or answers what it may not."""


_OURS = ("calibration", "policies", "sim", "traces")


def failed(kind: str, name: str, request_id: int | str, error: Exception) -> Exception:
    """What to raise where a policy of one's own raised `error`: what, for whom, and where.

    An error of Headway's own, met on the way, stays as it is.
    """
    if type(error).__module__.partition(".")[0] in _OURS:
        return error
    place = traceback.extract_tb(error.__traceback__)[-1]
    return PolicyError(
        f"{kind} {name!r} failed for request {request_id}: {type(error).__name__}: {error}"
        f" ({place.filename}, line {place.lineno})"
    )
