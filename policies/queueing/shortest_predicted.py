"""Shortest job first, by a predicted output length.

As in Fu et al., "Efficient LLM Scheduling by Learning to Rank", NeurIPS 2024: requests go by the
output length that a predictor gives them. Who predicts, and how well, is the study's to say
(`engine.predicted_length_error`).
"""

from policies.queue_policy import Key, QueuedRequestView, QueuePolicy


class ShortestPredictedPolicy:
    """Smallest predicted output first."""

    def key(self, request: QueuedRequestView) -> Key:
        """Predicted output tokens."""
        return (request.predicted_output_tokens,)


def build() -> QueuePolicy:
    """Make the policy; it has no options."""
    return ShortestPredictedPolicy()
