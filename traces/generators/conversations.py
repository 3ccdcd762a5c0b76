"""Sessions: conversations of users who think, and agent loops that call tools."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from traces.arrays import FloatArray, IntArray
from traces.errors import TraceError
from traces.generators.arrivals import ArrivalProcess, check_positive
from traces.generators.lengths import Lognormal
from traces.request import Prompt, RequestSpec, output_segment
from traces.source import TraceSource
from traces.trace import Trace


@dataclass(frozen=True, slots=True)
class Pause:
    """A lognormal pause: `median_s` seconds, log standard deviation `sigma`.

    Raises:
        TraceError: a median below 0, a negative sigma.
    """

    median_s: float
    sigma: float = 0.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.median_s) and self.median_s >= 0):
            raise TraceError(f"median_s: {self.median_s!r} is wrong; it must be finite and >= 0")
        if not (math.isfinite(self.sigma) and self.sigma >= 0):
            raise TraceError(f"sigma: {self.sigma!r} is wrong; it must be finite and >= 0")

    def sample(self, number: int, rng: np.random.Generator) -> FloatArray:
        """Pauses in seconds."""
        return self.median_s * rng.lognormal(0.0, self.sigma, number)


@dataclass(frozen=True, slots=True)
class Conversations:
    """Sessions of turns that each go on from the whole history.

    A session has 1 + a geometric number of further turns, `mean_turns` on average. Its first
    prompt is `system_tokens` shared by all sessions and `first_tokens` of its own. Every further
    prompt is the one before, its output, and new tokens: with probability `tool_share` the result
    of a tool (`tool_tokens`, after `tool_time`), else what a user wrote (`user_tokens`, after
    `think_time`). A session ends early where its next prompt would pass `max_context_tokens`.

    A turn's arrival, which only an open load uses, is nominal: its parent's, plus
    `nominal_s_per_token` for each token of the answer, plus the pause.

    Raises:
        TraceError: a value outside its range.
    """

    first_tokens: Lognormal
    output_tokens: Lognormal
    user_tokens: Lognormal
    think_time: Pause
    mean_turns: float = 4.0
    system_tokens: int = 0
    tool_share: float = 0.0
    tool_tokens: Lognormal = Lognormal(500, 0.0)  # noqa: RUF009 (frozen)
    tool_time: Pause = Pause(1.0)
    max_context_tokens: int = 131_072
    nominal_s_per_token: float = 0.02

    def __post_init__(self) -> None:
        if not (math.isfinite(self.mean_turns) and self.mean_turns >= 1):
            raise TraceError(f"mean_turns: {self.mean_turns!r} is wrong; it must be at least 1")
        if not 0 <= self.tool_share <= 1:
            raise TraceError(f"tool_share: {self.tool_share!r} is wrong; it must be from 0 to 1")
        if self.system_tokens < 0:
            raise TraceError(f"system_tokens: {self.system_tokens!r} is wrong; it must be >= 0")
        check_positive("max_context_tokens", self.max_context_tokens)
        check_positive("nominal_s_per_token", self.nominal_s_per_token)

    def generate(
        self, num_sessions: int, arrivals: ArrivalProcess, rng: np.random.Generator
    ) -> Trace:
        """A trace of that many sessions, which begin as `arrivals` says.

        Raises:
            TraceError: no session.
        """
        if num_sessions < 1:
            raise TraceError(f"num_sessions: {num_sessions!r} is wrong; it must be at least 1")
        arrival_rng, turns_rng, *turn_rngs = rng.spawn(7)
        starts = arrivals.times_s(num_sessions, arrival_rng)
        num_turns = turns_rng.geometric(1 / self.mean_turns, num_sessions)
        draws = self._draws(int(num_turns.sum()), turn_rngs)
        rows = self._rows(starts.tolist(), num_turns.tolist(), draws)
        source = TraceSource(name="generated", format="generated", num_rows_read=len(rows))
        return Trace.from_requests(rows, source)

    def _draws(self, number: int, rngs: list[np.random.Generator]) -> _Draws:
        first_rng, output_rng, user_rng, tool_rng, pause_rng = rngs
        is_tool = tool_rng.random(number) < self.tool_share
        tool_tokens = self.tool_tokens.sample(number, tool_rng)
        think_s, tool_s = (p.sample(number, pause_rng) for p in (self.think_time, self.tool_time))
        return _Draws(
            self.first_tokens.sample(number, first_rng),
            self.output_tokens.sample(number, output_rng),
            np.where(is_tool, tool_tokens, self.user_tokens.sample(number, user_rng)),
            np.where(is_tool, tool_s, think_s),
        )

    def _rows(self, starts: list[float], num_turns: list[int], draws: _Draws) -> list[RequestSpec]:
        rows: list[RequestSpec] = []
        place = 0
        for session, (start_s, turns) in enumerate(zip(starts, num_turns, strict=True)):
            self._add_session(rows, session, start_s, range(place, place + turns), draws)
            place += turns
        return rows

    def _add_session(
        self,
        rows: list[RequestSpec],
        session: int,
        start_s: float,
        places: range,
        draws: _Draws,
    ) -> None:
        parent: RequestSpec | None = None
        for place in places:
            number = len(rows)
            output = int(draws.output[place])
            if parent is None:
                prompt = self._first_prompt(session, int(draws.first[place]))
                at_s, think_s = start_s, None
            else:
                new: Prompt = ((f"turn-{number}", int(draws.new[place])),)
                answer = (output_segment(parent.request_id), parent.num_output_tokens)
                prompt = (*parent.prompt, answer, *new)
                think_s = float(draws.pause_s[place])
                answer_s = self.nominal_s_per_token * parent.num_output_tokens
                at_s = parent.arrival_s + answer_s + think_s
            length = sum(tokens for _, tokens in prompt)
            if length + output > self.max_context_tokens and parent is not None:
                return
            parent = RequestSpec(
                number,
                at_s,
                length,
                output,
                prompt,
                session_id=f"session-{session}",
                parent_id=None if parent is None else parent.request_id,
                think_time_s=think_s,
            )
            rows.append(parent)

    def _first_prompt(self, session: int, own_tokens: int) -> Prompt:
        own = (f"session-{session}", own_tokens)
        return (("system", self.system_tokens), own) if self.system_tokens else (own,)


@dataclass(frozen=True, slots=True)
class _Draws:
    """What chance decides about every turn, drawn at once."""

    first: IntArray
    output: IntArray
    new: IntArray
    pause_s: FloatArray
