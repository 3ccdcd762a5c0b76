"""Shared fixtures: the recorded data beside the checkout, where it is there."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

# The gate's answer belongs to the commit, so it draws the same examples every time; a run by hand
# draws new ones and so keeps looking.
settings.register_profile("gate", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("gate")


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """Folder of recorded data beside the checkout; a test that needs it is skipped without it."""
    shared = Path(__file__).resolve().parents[2] / "shared"
    if not shared.is_dir():
        pytest.skip("no ../shared folder with recorded data beside this checkout")
    return shared
