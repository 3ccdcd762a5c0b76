"""Shared fixtures: the recorded data beside the checkout, where it is there."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """Folder of recorded data beside the checkout; a test that needs it is skipped without it."""
    shared = Path(__file__).resolve().parents[2] / "shared"
    if not shared.is_dir():
        pytest.skip("no ../shared folder with recorded data beside this checkout")
    return shared
