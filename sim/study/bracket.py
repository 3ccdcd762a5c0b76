"""Searching by bracketing: the largest rate, and the smallest count, at which something holds.

Both ask a function for probes and believe that it holds below a threshold (of the rate) or above
one (of the count). The first probe, then doubling or halving until the threshold lies between
two, then bisection. The cheapest count, one, is always tried.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from sim.errors import StudyError


class Judged(Protocol):
    """What a probe must say."""

    @property
    def is_ok(self) -> bool:
        """Whether all limits hold."""
        ...

    @property
    def is_alone(self) -> bool:
        """Whether requests hardly ever meet: a lower rate would change nothing."""
        ...

    @property
    def is_at_once(self) -> bool:
        """Whether all requests arrive before any ends: a higher rate would change nothing."""
        ...


P = TypeVar("P", bound=Judged)

_MOST_DOUBLINGS = 40


@dataclass(frozen=True, slots=True)
class Bracket(Generic[P]):
    """`best` is the last value that holds (None: none does), `first_bad` the next that does not.

    `first_bad` is None if all hold.
    """

    best: float | None
    first_bad: float | None
    probes: dict[float, P]


def largest_rate(
    probe: Callable[[float], P], start: float, tolerance: float = 0.02, first_step: float = 2.0
) -> Bracket[P]:
    """The largest rate that holds, to within `tolerance` (a ratio of the bracket's ends less 1).

    `first_step` is the ratio of the second probe to the first: small where the answer is near.
    """
    probes: dict[float, P] = {}

    def ask(rate: float) -> P:
        probes[rate] = probe(rate)
        return probes[rate]

    good, bad = _open_rate_bracket(ask, start, first_step)
    while good is not None and bad is not None and bad / good > 1 + tolerance:
        middle = math.sqrt(good * bad)
        if ask(middle).is_ok:
            good = middle
        else:
            bad = middle
    return Bracket(good, bad, probes)


def _open_rate_bracket(
    ask: Callable[[float], P], start: float, first_step: float
) -> tuple[float | None, float | None]:
    """Two rates, the lower of which holds; None for the end that there is not."""
    first = ask(start)
    rate, last, step = start, first, first_step
    for _ in range(_MOST_DOUBLINGS):
        if first.is_ok and last.is_at_once:
            return rate, None
        if not first.is_ok and last.is_alone:
            return None, rate
        before, rate = rate, rate * step if first.is_ok else rate / step
        last, step = ask(rate), min(step * step, 2.0)
        if last.is_ok != first.is_ok:
            return (before, rate) if first.is_ok else (rate, before)
    raise StudyError(
        f"the limits {'hold' if first.is_ok else 'fail'} from rate {start:g} to {rate:g}: "
        "no threshold between them; begin elsewhere with --start"
    )


def smallest_count_near(probe: Callable[[int], P], guess: int, most: int) -> Bracket[P]:
    """The same as `smallest_count`, searched outwards from a guess that is close to the answer."""
    probes: dict[float, P] = {}

    def ask(count: int) -> bool:
        probes[count] = probe(count)
        return probes[count].is_ok

    stride, is_ok = 1, ask(guess)
    good, bad = (guess, 0) if is_ok else (most + 1, guess)
    here = guess
    while (here > 1) if is_ok else (here < most):
        here = max(here - stride, 1) if is_ok else min(here + stride, most)
        stride *= 2
        holds = ask(here)
        good, bad = (here, bad) if holds else (good, here)
        if holds != is_ok:
            break
    if good > most:
        return Bracket(None, most, probes)
    return _bisected(ask, good, bad, probes)


def smallest_count(probe: Callable[[int], P], most: int) -> Bracket[P]:
    """The smallest count from 1 to `most` that holds.

    Here `best` is that count and `first_bad` the one below it (None if 1 holds); if none up to
    `most` holds, `best` is None.
    """
    probes: dict[float, P] = {}

    def ask(count: int) -> bool:
        probes[count] = probe(count)
        return probes[count].is_ok

    good, bad = 1, 0
    while not ask(good):
        if good >= most:
            return Bracket(None, good, probes)
        bad, good = good, min(2 * good, most)
    return _bisected(ask, good, bad, probes)


def _bisected(
    ask: Callable[[int], bool], good: int, bad: int, probes: dict[float, P]
) -> Bracket[P]:
    while good - bad > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if ask(middle) else (good, middle)
    return Bracket(good, bad or None, probes)
