"""What arrives: one request, as the world sees it before any scheduler does."""

from __future__ import annotations

from dataclasses import dataclass

Segment = tuple[int | str, int]
"""`(segment_id, num_tokens)`: a piece of content without its tokens.

The first n tokens of a segment are always the same tokens, wherever the segment occurs.
"""

Prompt = tuple[Segment, ...]
"""A prompt as the segments that make it up, in order."""

MAX_NUM_TOKENS = 100_000_000
"""The largest token count believed: ten times the longest context window known, so that a
time stamp read as a count is caught."""


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
    """

    request_id: int
    arrival_s: float
    num_prompt_tokens: int
    num_output_tokens: int
    prompt: Prompt = ()
    priority: int = 0
