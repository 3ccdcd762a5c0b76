"""What a format would lose of a trace."""

from __future__ import annotations

from collections.abc import Container

import numpy as np

from traces.trace import Trace

_WORDS = {
    "prompts": "prompt segments",
    "session_id": "sessions",
    "parent_id": "parents",
    "think_time_s": "think times",
    "tenant": "tenants",
    "lora_id": "LoRA adapters",
}


def lost_columns(trace: Trace, held: Container[str]) -> list[str]:
    """Columns in which something is said and that are not in `held`, in words."""
    lost = [
        words
        for name, words in _WORDS.items()
        if name not in held and getattr(trace, name) is not None
    ]
    if "priority" not in held and trace.priority.any():
        lost.append("priorities")
    if "request_id" not in held and not np.array_equal(trace.request_id, np.arange(len(trace))):
        lost.append("request ids")
    return lost
