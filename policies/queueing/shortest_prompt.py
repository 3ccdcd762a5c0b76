"""Shortest job first, by the length of the prompt.

The shortest processing time rule (Smith, "Various optimizers for single-stage production", Naval
Research Logistics 3, 1956) has the least mean wait where jobs are served one after another. The
prompt is the part of a job that is known when it arrives.
"""

from policies.queue_policy import Key, QueuedRequestView, QueuePolicy


class ShortestPromptPolicy:
    """Smallest prompt first."""

    def key(self, request: QueuedRequestView) -> Key:
        """Prompt tokens."""
        return (request.num_prompt_tokens,)


def build() -> QueuePolicy:
    """Make the policy; it has no options."""
    return ShortestPromptPolicy()
