"""The shipped sample trace: made by our generator, see README.md beside this file."""

from __future__ import annotations

from importlib.resources import as_file, files

from traces.loader import load
from traces.trace import Trace


def sample() -> Trace:
    """The shipped sample: chat-like requests, generated, not recorded."""
    with as_file(files(__name__) / "chat.jsonl") as path:
        trace = load(path)
    # The file's place on this machine must not get into results.
    return trace.with_source(name="sample:chat.jsonl", reading=None)
