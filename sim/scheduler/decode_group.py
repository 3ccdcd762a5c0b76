"""Requests that decode one token a step, as sums: what a step costs does not depend on how many.

A member's progress is a straight line: `d` steps after it joined it has `d` more tokens. So its
fields are left as they were when it joined, and the group keeps what a step needs: how many
members there are, the sum of their contexts, the longest of them, how many of them cross a block
boundary in a step of a given phase, and a heap of the steps with which they end.
"""

from __future__ import annotations

from heapq import heappop, heappush

from sim.scheduler.request import Request, RequestId


class Member:
    """A request in the group: in steps `join_step` to `last_step`, both included."""

    __slots__ = ("join_step", "last_step", "phase", "request")

    def __init__(self, request: Request, join_step: int, last_step: int, phase: int) -> None:
        self.request = request
        self.join_step = join_step
        self.last_step = last_step
        self.phase = phase

    def num_steps_before(self, step: int) -> int:
        """Of the steps before `step`, in how many it took part."""
        return max(min(step, self.last_step + 1) - self.join_step, 0)


class DecodeGroup:
    """Members that take part in every step until they end.

    `step` is the number of the next step to be scheduled. `size` and `context_tokens` are of the
    members that take part in it: their number, and the tokens they have computed, summed.
    """

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.step = 0
        self.size = 0
        self.context_tokens = 0
        self.last_joined_index = -1  # an upper bound of the members' admission indices
        self.members: dict[RequestId, Member] = {}
        self._ends: list[tuple[int, int, Member]] = []
        # (-(context less step), last step) of the members, and of some that ended: all contexts
        # grow alike, so the longest stays so until it ends, and its entry is dropped only then.
        self._longest: list[tuple[int, int]] = []
        self._phases = [0] * block_size

    def join(self, request: Request, num_steps: int) -> None:
        """Let a request take part in the next `num_steps` (>= 1) steps."""
        phase = (self.step - request.num_computed_tokens) % self.block_size
        member = Member(request, self.step, self.step + num_steps - 1, phase)
        self.members[request.request_id] = member
        heappush(self._ends, (member.last_step, request.admission_index, member))
        heappush(self._longest, (self.step - request.num_computed_tokens, member.last_step))
        self._phases[phase] += 1
        self.size += 1
        self.context_tokens += request.num_computed_tokens
        self.last_joined_index = max(self.last_joined_index, request.admission_index)

    @property
    def next_last_step(self) -> int:
        """The last step of the member that ends first; the group must have members."""
        return self._ends[0][0]

    @property
    def max_context_tokens(self) -> int:
        """The most tokens that a member of the next step has computed; 0 without members.

        Whoever ends must have been retired.
        """
        longest = self._longest
        while longest and longest[0][1] < self.step:
            heappop(longest)
        return self.step - longest[0][0] if longest else 0

    def blocks_needed(self, step: int) -> int:
        """Blocks that the members of step `step` need for its tokens, if all are in it."""
        return self._phases[step % self.block_size]

    def cycle_of_blocks(self) -> list[int]:
        """Blocks needed in each of the next `block_size` steps; then it begins again."""
        first = self.step % self.block_size
        return self._phases[first:] + self._phases[:first]

    def max_steps_within(self, num_blocks: int, limit: int) -> int:
        """How many steps, at most `limit`, the group can take with `num_blocks` blocks."""
        if self.size * -(-limit // self.block_size) <= num_blocks:
            return limit
        steps = num_blocks // self.size * self.block_size if self.size else limit
        left = num_blocks - steps // self.block_size * self.size
        while steps < limit:
            left -= self.blocks_needed(self.step + steps)
            if left < 0:
                break
            steps += 1
        return min(steps, limit)

    def advance(self, num_steps: int) -> None:
        """Schedule the next steps: every member computes one token in each."""
        self.step += num_steps
        self.context_tokens += num_steps * self.size

    def retire(self) -> list[Member]:
        """Take those that the next step does no longer hold out of the sums, in running order."""
        retired: list[Member] = []
        while self._ends and self._ends[0][0] < self.step:
            member = heappop(self._ends)[2]
            self._phases[member.phase] -= 1
            self.size -= 1
            self.context_tokens -= member.request.num_computed_tokens + member.num_steps_before(
                self.step
            )
            retired.append(member)
        if not self.size:
            self.last_joined_index = -1
        return retired

    def clear(self) -> list[Member]:
        """Dissolve the group; returns its members, those retired before not among them."""
        members = [member for _, _, member in self._ends]
        self.members.clear()
        self._ends.clear()
        self._longest.clear()
        self._phases = [0] * self.block_size
        self.size = self.context_tokens = 0
        self.last_joined_index = -1
        return members
