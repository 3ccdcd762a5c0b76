"""Exact leaps: many decode steps in one event, and steps whose cost does not grow with the batch.

Why the result is that of stepping, bit for bit in decisions and counts, and in the order of every
sum of times:

- The decisions are the scheduler's. A step that is not the group's alone is decided by
  `LeapScheduler.next_step`, which is `schedule` with the steady decodes taken as one. A leap of k
  steps is taken only where the scheduler says that these k decisions are "one token for every
  running request" (`max_leap`). Arrivals can change the next decision, but none made before.
- The times are the cost model's. `decode_times_s` gives the k step times bit for bit as
  `step_time_s` would, and `np.add.accumulate` adds them in the order in which the clock would.
- An arrival inside a leap cuts it. With decisions at the instants t[0] < t[1] < ..., those before
  the arrival stay, since they could not see it; the first one at or after it is made anew. Two
  things at one instant happen in the order of their ranks (`environment`), as in stepping.

While a leap is under way nothing of it is written down: the scheduler and the rows still stand
where it began, and `_commit` takes the steps that were in it all at once.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
from simpy import Interrupt

from calibration import StepShape, decode_shape
from calibration.cost_model import FloatArray
from sim.engine import Batch, Emitted, Replica, Steps
from sim.records import LeapRow
from sim.scheduler.leap_scheduler import LeapScheduler, LeapStep
from sim.scheduler.output import EngineCoreOutput, SchedulerOutput
from sim.scheduler.request import Request
from sim.sim_request import SimRequest

# Steps costed at once; a leap that could go on longer is followed by another.
_MAX_STEPS = 512


@dataclass(slots=True)
class LeapBatch(Batch):
    """A step on its way whose steady decodes are a sum: `num_grouped` requests of the group."""

    step: LeapStep
    num_grouped: int


@dataclass(slots=True)
class _Leap:
    """A leap under way.

    Decision i is made at `decisions[i]`; the last entry is when the next one after the leap is
    due. Step i is on the device from `starts[i]` to `ends[i]`.
    """

    decisions: FloatArray
    starts: FloatArray
    ends: FloatArray
    num_waiting: int
    was_cut: bool = False

    def num_before(self, at_s: float, *, inclusive: bool) -> int:
        """Decisions after the first that are made before `at_s`, or at it if `inclusive`."""
        side: Any = "right" if inclusive else "left"
        return int(self.decisions[1:].searchsorted(at_s, side))


class LeapReplica(Replica):
    """`Replica` on a `LeapScheduler`: the same results, at a cost that the batch does not set."""

    scheduler: LeapScheduler

    def __init__(self, *args: Any, **options: Any) -> None:
        self._leap: _Leap | None = None
        self._in_flight: deque[LeapBatch] = deque()
        super().__init__(*args, **options)
        self.scheduler.on_dissolve = self._stamp_members

    @property
    def num_known_tokens(self) -> int:
        """As `Replica.num_known_tokens`, steps of a leap under way included."""
        if self._leap is None:
            return self._num_known_tokens
        num_results = self._leap.num_before(self.env.now, inclusive=self._has_acted)
        before = self._in_flight[0] if self._in_flight else None
        if before is None or not num_results:
            return self._num_known_tokens + num_results * self.scheduler.group.size
        num_in_first = before.num_grouped + len(before.output.sampling_req_ids)
        num_in_others = (num_results - 1) * self.scheduler.group.size
        return self._num_known_tokens + num_in_first + num_in_others

    @property
    def settled_before_s(self) -> float:
        """As `Replica.settled_before_s`: nothing of a leap under way is written down."""
        return self.env.now if self._leap is None else float(self._leap.decisions[0])

    def submit(self, request: SimRequest) -> None:
        """As `Replica.submit`; cuts a leap at the first decision that can see the request."""
        super().submit(request)
        if self._leap is not None and not self._leap.was_cut:
            self._leap.was_cut = True
            self._process.interrupt()

    def close(self) -> list[SimRequest]:
        """As `Replica.close`."""
        if self._leap is not None:
            num_steps = self._leap.num_before(self.env.now, inclusive=self._has_acted)
            if num_steps:
                self._commit(self._leap, num_steps)
        self.scheduler.dissolve()
        return super().close()

    @property
    def _has_acted(self) -> bool:
        """Whether this replica's own turn at this very instant is over."""
        return self.env.rank > self.rank

    # The cycle --------------------------------------------------------------------------

    def _run(self) -> Steps:
        while True:
            if not self._has_work:
                yield self._until_submit()
                continue
            num_steps = self.scheduler.max_leap(_MAX_STEPS)
            if num_steps:
                yield from self._leap_over(num_steps)
                continue
            batch = self._schedule()
            if batch is not None:
                yield self.env.at(batch.end_s, self.rank)
                self._update(batch, self.env.now)

    def _run_async(self) -> Steps:
        in_flight = self._in_flight
        while True:
            if len(in_flight) == 1 and self._has_work:
                num_steps = self.scheduler.max_leap(_MAX_STEPS)
                if num_steps:
                    yield from self._leap_over(num_steps)
                    continue
            if self._has_work:
                batch = self._schedule()
                if batch is not None:
                    in_flight.append(batch)
                    yield from self._host_works(batch.num_requests)
                    if len(in_flight) == 1:
                        continue
            if in_flight:
                if in_flight[0].end_s > self.env.now:
                    yield self.env.at(in_flight[0].end_s, self.rank)
                self._update(in_flight.popleft(), self.env.now)
                self._stalled = False
            elif not self._has_work:
                yield self._until_submit()

    def _schedule(self) -> LeapBatch | None:
        step = self.scheduler.next_step()
        output = step.output
        if self._splits is not None:
            self._splits.decided(self.env.now, output)
        self._count_preemptions(output)
        if step.is_empty:
            self._stall(output)
            return None
        num_grouped = step.num_decodes
        shape = self._shape(output)
        if num_grouped:
            shape = StepShape(
                shape.num_tokens + num_grouped,
                shape.num_logits + num_grouped,
                shape.num_decodes + num_grouped,
                shape.decode_context_tokens + step.decode_context_tokens,
                shape.chunks,
                max(shape.decode_max_context_tokens, step.decode_max_context_tokens),
            )
        batch = self._make_batch(output, shape, len(output.num_scheduled_tokens) + num_grouped)
        return _with_step(batch, step)

    def _left_out(self, output: SchedulerOutput, num_requests: int) -> list[SimRequest]:
        members = self.scheduler.group.members
        left_out = super()._left_out(output, num_requests)
        return [request for request in left_out if request.request_id not in members]

    def _update(self, batch: Batch, now: float) -> None:
        assert isinstance(batch, LeapBatch)
        num_grouped = batch.step.num_decodes  # 0 if the group was dissolved meanwhile
        results, ended = self.scheduler.process(batch.step)
        if self._splits is not None:
            self._splits.processed(now)
        emitted = self._stamp(results, now)
        for result in ended:
            self.requests[result.request_id].last_token_s = now
        stopped = [result for result in results if result.finish_reason is not None]
        if ended and stopped:
            # Answers go out in running order, whether or not a request was in the group.
            ended = sorted(
                (*ended, *stopped), key=lambda r: self.requests[r.request_id].admission_index
            )
        else:
            ended = ended or stopped
        emitted = Emitted(
            emitted.num_tokens + num_grouped,
            emitted.num_first_tokens,
            emitted.num_gaps + num_grouped,
        )
        self._record_step(batch, now, emitted, len(ended))
        self._end(ended)

    def _stamp_members(self, requests: list[Request]) -> None:
        """Members that stand on their own again: their last token came with the last step."""
        for request in requests:
            self.requests[request.request_id].last_token_s = self._last_result_s

    # Leaps --------------------------------------------------------------------------------

    def _leap_over(self, num_steps: int) -> Steps:
        """Wait until the leap is over or cut, then take its steps."""
        if self._splits is not None:
            self._splits.decided_again(self.env.now)
        leap = self._leap = self._plan(num_steps)
        try:
            yield self.env.at(float(leap.decisions[-1]), self.rank)
        except Interrupt:
            num_steps = 1 + leap.num_before(self.env.now, inclusive=self._has_acted)
            num_steps = min(num_steps, len(leap.starts))
            yield self.env.at(float(leap.decisions[num_steps]), self.rank)
        self._leap = None
        self._commit(leap, num_steps)

    def _plan(self, num_steps: int) -> _Leap:
        group = self.scheduler.group
        num_waiting = self.scheduler.num_waiting
        context_tokens = group.context_tokens + group.size
        times_s = self._cost.decode_times_s(
            group.size, context_tokens, num_steps, group.max_context_tokens + 1
        )
        host_s = self._host.step_s(group.size)
        if not self._in_flight:
            return _synchronous(self.env.now, host_s, times_s, num_waiting)
        return _asynchronous(self.env.now, host_s, times_s, num_waiting, self._last_end_s)

    def _commit(self, leap: _Leap, num_steps: int) -> None:
        """Take the first steps of a leap: decisions, results and rows."""
        scheduler = self.scheduler
        size = scheduler.group.size
        first_context_tokens = scheduler.group.context_tokens + size
        num_blocks_before = scheduler.ledger.num_used_blocks
        cycle = scheduler.group.cycle_of_blocks()
        last = scheduler.leap(num_steps)
        self._last_end_s = float(leap.ends[num_steps - 1])
        ended: list[EngineCoreOutput] = []
        if self._in_flight:
            # The batch before the leap comes out first; the leap's last one stays on its way.
            self._update(self._in_flight.popleft(), float(leap.decisions[1]))
            self._in_flight.append(self._last_batch(leap, num_steps, last))
            if self._splits is not None:
                self._splits.planned_decodes()
            num_done = num_steps - 1
            known_s = leap.decisions[2 : num_steps + 1]
        else:
            num_done = num_steps
            known_s = leap.decisions[1 : num_steps + 1]
            _, ended = scheduler.process(last)
        if num_done:
            row = LeapRow(
                self.replica_id,
                self.num_steps,
                size,
                first_context_tokens,
                leap.num_waiting,
                len(ended),
                leap.starts[:num_done],
                known_s,
                num_blocks_before,
                cycle,
            )
            self._record_leap(row, ended)

    def _record_leap(self, row: LeapRow, ended: list[EngineCoreOutput]) -> None:
        num_steps = len(row.ends_s)
        self._records.steps.append_leap(row)
        self.num_steps += num_steps
        self._num_known_tokens += num_steps * row.num_requests
        self._last_result_s = float(row.ends_s[-1])
        self._tokens_came(self._last_result_s)
        if self._splits is not None:
            self._splits.leapt(self._last_result_s)
        for result in ended:
            self.requests[result.request_id].last_token_s = self._last_result_s
        self._end(ended)

    def _last_batch(self, leap: _Leap, num_steps: int, step: LeapStep) -> LeapBatch:
        size = step.num_decodes
        batch = Batch(
            step.output,
            decode_shape(size, step.decode_context_tokens, step.decode_max_context_tokens),
            size,
            float(leap.starts[num_steps - 1]),
            float(leap.ends[num_steps - 1]),
            size,
            leap.num_waiting,
            self.scheduler.ledger.num_used_blocks,
            0,
        )
        return _with_step(batch, step)


def _with_step(batch: Batch, step: LeapStep) -> LeapBatch:
    return LeapBatch(
        batch.output,
        batch.shape,
        batch.num_requests,
        batch.start_s,
        batch.end_s,
        batch.num_running,
        batch.num_waiting,
        batch.kv_blocks_used,
        batch.num_cached_tokens,
        step,
        step.num_decodes,
    )


def _synchronous(now: float, host_s: float, times_s: FloatArray, num_waiting: int) -> _Leap:
    """Each step begins when the host is done after the last one's end, where it is decided."""
    if host_s:
        parts = np.empty(2 * len(times_s) + 1)
        parts[0], parts[1::2], parts[2::2] = now, host_s, times_s
        instants = np.add.accumulate(parts)
        return _Leap(instants[::2], instants[1::2], instants[2::2], num_waiting)
    instants = np.add.accumulate(np.concatenate(((now,), times_s)))
    return _Leap(instants, instants[:-1], instants[1:], num_waiting)


def _asynchronous(
    now: float, host_s: float, times_s: FloatArray, num_waiting: int, device_free_s: float
) -> _Leap:
    """Each step is decided when the step before the last one ends, and begins when that does."""
    if now + host_s <= device_free_s and host_s <= times_s.min():
        # The host is never waited for: each step begins when the one before it ends.
        instants = np.add.accumulate(np.concatenate(((device_free_s,), times_s)))
        starts, ends = instants[:-1], instants[1:]
    else:
        starts, ends = _host_bound(now, host_s, times_s, device_free_s)
    return _Leap(np.concatenate(((now,), starts)), starts, ends, num_waiting)


def _host_bound(
    now: float, host_s: float, times_s: FloatArray, device_free_s: float
) -> tuple[FloatArray, FloatArray]:
    starts, ends = np.empty(len(times_s)), np.empty(len(times_s))
    decided_s, free_s = now, device_free_s
    for i, time_s in enumerate(times_s.tolist()):
        starts[i] = decided_s = max(decided_s + host_s, free_s)
        ends[i] = free_s = decided_s + time_s
    return starts, ends
