"""The error of this room."""


class PolicyError(ValueError):
    """A policy that is unknown, can't be loaded, or answers what it may not."""
