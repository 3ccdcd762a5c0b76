"""Fair sharing between tenants: the virtual token counter.

Sheng et al., "Fairness in Serving Large Language Models", OSDI 2024, Algorithm 2. Each tenant has
a counter of the service that it got: its prompt tokens when a request is first admitted, its
output tokens as they come, each with a weight. The tenant of the smallest counter is served next,
its own requests by arrival. A tenant that comes back after having had nothing to do is lifted to
the smallest counter of those that wait, so that it has no credit for the time in between.

The paper bounds the difference of service between two tenants that always have
requests waiting by 2 max(w_p * longest prompt, w_q * tokens in a full batch), over any time. It
knows no preemption; here the work of computing a preempted request again is not charged.
"""

from collections.abc import Hashable

from policies.errors import PolicyError
from policies.queue_policy import Key, QueuedRequestView, QueuePolicy, TrackingPolicy


class VirtualTokenCounterPolicy(TrackingPolicy):
    """The tenant that got least goes first; requests without a tenant are one tenant's.

    Args:
        prompt_weight: service that one prompt token counts for (the paper's w_p), at least 0.
        output_weight: the same for an output token (w_q). The paper uses 1 and 2.

    Raises:
        PolicyError: a weight is not a number of at least 0, or both are 0.
    """

    def __init__(self, prompt_weight: float = 1.0, output_weight: float = 2.0) -> None:
        for name, weight in (("prompt_weight", prompt_weight), ("output_weight", output_weight)):
            if type(weight) not in (int, float) or not 0 <= weight < float("inf"):
                raise PolicyError(f"{name} is {weight!r}; it must be a number of at least 0")
        if not prompt_weight and not output_weight:
            raise PolicyError("prompt_weight and output_weight are both 0; one must be above")
        self._prompt_weight = prompt_weight
        self._output_weight = output_weight
        self._counters: dict[str | None, float] = {}
        self._num_waiting: dict[str | None, int] = {}  # of tenants with any
        self._waiting: set[int] = set()
        self._last_to_leave: str | None = None

    def key(self, request: QueuedRequestView) -> Key:
        """The tenant's counter."""
        return (self.counter(request.tenant),)

    def counter(self, tenant: str | None) -> float:
        """Service that a tenant got so far, lifts included."""
        return self._counters.get(tenant, 0.0)

    def lane(self, request: QueuedRequestView) -> Hashable:
        """The tenant."""
        return request.tenant

    def joined(self, request: QueuedRequestView, *, is_new: bool) -> None:
        """Lift the tenant's counter if none of its requests waited."""
        tenant = request.tenant
        if is_new and tenant not in self._num_waiting:
            others = self._num_waiting or {self._last_to_leave: 1}
            floor = min(self.counter(other) for other in others)
            self._counters[tenant] = max(self.counter(tenant), floor)
        self._num_waiting[tenant] = self._num_waiting.get(tenant, 0) + 1
        self._waiting.add(request.request_id)

    def admitted(self, request: QueuedRequestView, *, is_new: bool) -> None:
        """Charge the prompt, once."""
        self._stop_waiting(request)
        if is_new:
            self._charge(request.tenant, self._prompt_weight * request.num_prompt_tokens)

    def emitted(self, request: QueuedRequestView, num_tokens: int) -> None:
        """Charge tokens that came out."""
        self._charge(request.tenant, self._output_weight * num_tokens)

    def left(self, request: QueuedRequestView) -> None:
        """Forget a request that was taken back while it waited."""
        self._stop_waiting(request)

    def _charge(self, tenant: str | None, service: float) -> None:
        self._counters[tenant] = self.counter(tenant) + service

    def _stop_waiting(self, request: QueuedRequestView) -> None:
        if request.request_id not in self._waiting:
            return
        self._waiting.remove(request.request_id)
        tenant = request.tenant
        self._num_waiting[tenant] -= 1
        if not self._num_waiting[tenant]:
            del self._num_waiting[tenant]
            self._last_to_leave = tenant


def build(prompt_weight: float = 1.0, output_weight: float = 2.0) -> QueuePolicy:
    """Make the policy."""
    return VirtualTokenCounterPolicy(prompt_weight, output_weight)
