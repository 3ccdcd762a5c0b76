"""A multi-level feedback queue: short jobs first, without knowing which are short.

Wu et al., "Fast Distributed Inference Serving for Large Language Models" (FastServe,
arXiv:2305.05920, 2023): level i has a quantum of service, each larger than the one before. A
request joins the first level whose quantum covers its prompt (skip-join) and falls to the next
when it has used up the quantum of its level. A waiting request preempts running ones of a larger
level.

Service is counted in tokens here, where the paper has seconds of the GPU. Its promotion of
requests that starve is left out: what has fallen to the last level goes by arrival there.
"""

from policies.errors import PolicyError
from policies.queue_policy import Key, QueuedRequestView, QueuePolicy

_MOST_LEVELS = 1000
_BEYOND_ANY_REQUEST = 2.0**53  # tokens: no service reaches the levels after such a quantum


class MultiLevelFeedbackPolicy:
    """Smallest level first, and within a level by arrival.

    Args:
        quantum_tokens: tokens of service in the first level, at least 1.
        ratio: quantum of a level over that of the one before, above 1.
        num_levels: 1 to 1000.

    Raises:
        PolicyError: an option is out of range.
    """

    def __init__(self, quantum_tokens: int = 256, ratio: float = 2.0, num_levels: int = 8) -> None:
        for name, value in (("quantum_tokens", quantum_tokens), ("num_levels", num_levels)):
            if type(value) is not int or value < 1:
                raise PolicyError(f"{name} is {value!r}; it must be a whole number of at least 1")
        if num_levels > _MOST_LEVELS:
            raise PolicyError(f"num_levels is {num_levels!r}; it must be at most {_MOST_LEVELS}")
        if type(ratio) not in (int, float) or not 1 < ratio < float("inf"):
            raise PolicyError(f"ratio is {ratio!r}; it must be a number above 1")
        self._quanta = _quanta(quantum_tokens, float(ratio), num_levels)

    def key(self, request: QueuedRequestView) -> Key:
        """The level."""
        return (self.level(request),)

    def level(self, request: QueuedRequestView) -> int:
        """Where its service so far has brought it, from 0."""
        last = len(self._quanta) - 1
        level = 0
        while level < last and self._quanta[level] < request.num_prompt_tokens:
            level += 1
        limit = self._quanta[level]
        while level < last and request.num_served_tokens > limit:
            level += 1
            limit += self._quanta[level]
        return level


def _quanta(first: int, ratio: float, num_levels: int) -> list[float]:
    quanta: list[float] = [first]
    while len(quanta) < num_levels and quanta[-1] < _BEYOND_ANY_REQUEST:
        quanta.append(first * ratio ** len(quanta))
    return quanta


def build(quantum_tokens: int = 256, ratio: float = 2.0, num_levels: int = 8) -> QueuePolicy:
    """Make the policy."""
    return MultiLevelFeedbackPolicy(quantum_tokens, ratio, num_levels)
