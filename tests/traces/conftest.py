"""Ways to make trace files of every format, right and wrong."""

from collections.abc import Callable
from pathlib import Path

import pytest

WriteText = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> WriteText:
    """Writes bytes or text to a file of `tmp_path` exactly as given."""

    def write_file(content: str | bytes, name: str = "trace.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write_file
