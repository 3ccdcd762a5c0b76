"""Units in which files write times, and the suspicion that one was taken for another."""

from __future__ import annotations

from traces.errors import TraceError, did_you_mean, listed

TICKS_PER_S = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}

_FEWEST_ROWS = 10
_FASTEST_PER_S = 200.0  # the busiest public traces have some tens of requests a second
_SLOWEST_PER_S = 0.005
_LONGEST_S = 2 * 86_400.0


def check_unit(unit: str) -> str:
    """`unit` if it is one; raises TraceError with the known ones if not."""
    if unit in TICKS_PER_S:
        return unit
    hint = did_you_mean(unit, TICKS_PER_S)
    raise TraceError(f"time unit {unit!r} is wrong{hint}; it must be {listed([*TICKS_PER_S])}")


def unit_suspicion(num_rows: int, span_ticks: float, unit: str) -> str | None:
    """A sentence if the rate of requests says that times are not in `unit`; None if it doesn't.

    Suspected: over 200 requests a second (a unit too fine), or under one in 200 s over days (a
    unit too coarse), where the neighbouring unit gives an ordinary rate.
    """
    if num_rows < _FEWEST_ROWS or span_ticks <= 0:
        return None
    span_s = span_ticks / TICKS_PER_S[unit]
    rate = (num_rows - 1) / span_s
    units = [*TICKS_PER_S]
    place = units.index(unit)
    if rate > _FASTEST_PER_S and place > 0:
        other = units[place - 1]
    elif rate < _SLOWEST_PER_S and span_s > _LONGEST_S and place + 1 < len(units):
        other = units[place + 1]
    else:
        return None
    other_s = span_ticks / TICKS_PER_S[other]
    if not _SLOWEST_PER_S <= (num_rows - 1) / other_s <= _FASTEST_PER_S:
        return None
    return (
        f"{duration(span_s)} of trace if {unit}, {duration(other_s)} if {other}: read as {unit}, "
        f"which makes {rate:,.3g} requests a second; set time_unit if that is wrong"
    )


def duration(seconds: float) -> str:
    """A length of time in its natural unit: 0.85 s, 34 min, 2.1 h, 88 days."""
    for unit, length_s in (("days", 86_400.0), ("h", 3_600.0), ("min", 60.0)):
        if seconds >= 2 * length_s:
            return f"{seconds / length_s:,.3g} {unit}"
    return f"{seconds:,.3g} s"
