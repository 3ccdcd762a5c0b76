"""What arrives: one request, as the world sees it before any scheduler does."""

from __future__ import annotations

from dataclasses import dataclass

Segment = tuple[int | str, int]
"""`(segment_id, num_tokens)`: a piece of content without its tokens.

The first n tokens of a segment are always the same tokens, wherever the segment occurs. The
segment `out:<request_id>` is what that request generates.
"""

Prompt = tuple[Segment, ...]
"""A prompt as the segments that make it up, in order."""

MAX_NUM_TOKENS = 100_000_000
"""The largest token count believed: ten times the longest context window known, so that a
time stamp read as a count is caught."""

NO_PARENT = -1
"""In a column of parents: the request begins its session."""


@dataclass(frozen=True, slots=True)
class RequestSpec:
    """One request of a trace.

    Attributes:
        request_id: row number in the file or generator order, from 0; the last tie-break.
        arrival_s: seconds from the trace's zero.
        num_prompt_tokens: prompt length, at least 1.
        num_output_tokens: the true output length, at least 1; no policy may see it.
        prompt: the prompt's segments, whose lengths sum to `num_prompt_tokens`. Empty: content
            of its own, shared with no other request.
        priority: smaller is more urgent, as in vLLM.
        session_id: the conversation or agent run that it is part of; None if of none.
        parent_id: the request whose answer it follows; None if it begins a session.
        think_time_s: seconds from its parent's completion to its sending (the user thinks, a tool
            runs); None if not recorded.
        tenant: who sent it; None if not recorded.
        lora_id: the LoRA adapter it asks for; 0 is the base model.
    """

    request_id: int
    arrival_s: float
    num_prompt_tokens: int
    num_output_tokens: int
    prompt: Prompt = ()
    priority: int = 0
    session_id: str | None = None
    parent_id: int | None = None
    think_time_s: float | None = None
    tenant: str | None = None
    lora_id: int = 0


def output_segment(request_id: int) -> str:
    """Segment id of the tokens that a request generates."""
    return f"out:{request_id}"
