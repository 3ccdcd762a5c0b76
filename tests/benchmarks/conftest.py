"""Named figures of the benchmarks, printed when all are done."""

from __future__ import annotations

from collections.abc import Callable

import pytest

_FIGURES = pytest.StashKey[list[tuple[str, str]]]()


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Takes a figure: its name and its value in words."""
    lines = request.config.stash.setdefault(_FIGURES, [])
    return lambda name, value: lines.append((name, value))


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print what was taken."""
    for name, value in config.stash.get(_FIGURES, []):
        terminalreporter.write_line(f"{name:<80} {value}")
