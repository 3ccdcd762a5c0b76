"""The answer for one configuration, from all of its searches: value, interval, cost, in words."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from sim.study.capacity import Found, Kind, nothing_meets
from sim.study.capacity_interval import count_range, range_chance, rate_interval
from sim.study.gpu_costs import dollars_an_hour, watts
from sim.study.limits import MAIN_LIMIT_WORDS
from sim.study.probe import Probe
from sim.wording import number_of

_CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Spread:
    """Where the answer lies, and what was taken into account.

    The ends are of an interval at `confidence` or, where that is None, the range of `num_draws`
    answers. `covers` and `not_covered` are the sources of error, the latter with the reason.
    """

    confidence: float | None
    num_draws: int
    low: float | None
    high: float | None
    covers: tuple[str, ...]
    not_covered: tuple[str, ...]

    def sentence(self) -> str:
        """The ends and the sources in words."""
        left_out = "; ".join(self.not_covered)
        if self.low is None or self.high is None:
            return f"no interval; not covered: {left_out}"
        rest = f"; not covered: {left_out}" if left_out else ""
        return f"{self._ends(self.low, self.high)}, covers {' and '.join(self.covers)}{rest}"

    def _ends(self, low: float, high: float) -> str:
        ends = f"{low:.4g} to {high:.4g}" if high < np.inf else f"{low:.4g} and up"
        if self.confidence is not None:
            return f"{self.confidence:.0%} interval {ends}"
        if low == high:
            ends = f"{low:.4g} each time"
        chance = range_chance(self.num_draws)
        return f"found in all searches: {ends} (one more would lie within in {chance:.0%} of cases)"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a configuration can do. `value` is requests a second or replicas, None if nothing does.

    `failed` says why there is no value; `steps_slower` and `steps_faster` are the answers with
    step times that are off by a given share, None where none was given or nothing was found.
    `refused_share` of the requests are rejected at the answer, and are in no latency. `warnings`
    are those of the run there: what lies beyond the calibrated range, and the like.
    """

    configuration: str
    kind: Kind
    value: float | None
    next_bad: float | None
    spread: Spread | None
    num_seeds: int
    limited_by: str | None
    hardware: str
    cost_label: str
    is_calibrated: bool
    gpus: int | None
    watts: int | None
    dollars_an_hour: float | None
    failed: str | None
    scaled: Mapping[str, float | None]
    warnings: tuple[str, ...] = ()
    refused_share: float = 0.0

    def row(self) -> dict[str, Any]:
        """The answer as a flat row."""
        values = asdict(self)
        spread, scaled = values.pop("spread") or {}, values.pop("scaled")
        ends = {name: spread.get(name) for name in ("low", "high")}
        values["warnings"] = "; ".join(self.warnings)
        words = {name: "; ".join(spread.get(name, ())) for name in ("covers", "not_covered")}
        return {**values, **ends, **words, **scaled}

    def sentence(self) -> str:
        """The answer in one sentence, without its interval."""
        if self.value is None:
            return f"{self.configuration}: {self.failed}"
        parts = self._rate_parts() if self.kind == "rate" else self._count_parts()
        if self.refused_share:
            parts.append(f"{self.refused_share:.1%} of the requests are REFUSED, and count as sent")
        for side, value in self.scaled.items():
            shown = "none" if value is None else f"{value:.4g}"
            parts.append(f"with {side.removeprefix('steps_')} steps {shown}")
        return f"{self.configuration}: {'; '.join(parts)}"

    def _rate_parts(self) -> list[str]:
        meets = f"{self.value:.4g} requests/s meet the limits"
        if self.num_seeds == 1 and self.next_bad is not None:
            meets += f", {self.next_bad:.4g} do not"
        return [meets, *([MAIN_LIMIT_WORDS[self.limited_by]] if self.limited_by else [])]

    def _count_parts(self) -> list[str]:
        meets = number_of(int(self.value or 0), "replica meets", "replicas meet")
        meets = f"{meets} the limits"
        if self.next_bad is not None:
            meets += f", {number_of(int(self.next_bad), 'does not', 'do not')}"
        return [meets, f"that is {', '.join(self._costs())}"]

    def _costs(self) -> list[str]:
        costs = [number_of(self.gpus or 0, "GPU")]
        if self.watts is not None:
            costs.append(f"at most {self.watts:,} W of board power")
        hour = self.dollars_an_hour
        if hour is not None:
            costs.append(f"{hour:,.2f} dollars an hour ({hour * 8760:,.0f} a year)")
        return costs


def answer_of(
    founds: Sequence[Found], prices: Mapping[str, float], unknown: str | None = None
) -> Answer:
    """The answer of one configuration's searches.

    `unknown` says why there are no searches with the profile's errors, None if there are.
    """
    plain = sorted((f for f in founds if f.search.is_plain), key=lambda f: f.search.seed)
    members = [f for f in founds if f.search.member is not None]
    scaled = [f for f in founds if f.search.step_time_factor != 1]
    first = plain[0]
    failed = next((text for f in plain if (text := nothing_meets(f)) is not None), None)
    value, spread = None, None
    if failed is None:
        value, spread = _value_and_spread(plain, members, unknown)
    gpus = None
    if value is not None and first.search.kind == "replicas":
        gpus = int(value) * first.gpus_a_replica
    return Answer(
        configuration=first.search.label,
        kind=first.search.kind,
        value=value,
        next_bad=first.next_bad if failed is None else None,
        spread=spread,
        num_seeds=len(plain),
        limited_by=None if first.at is None else first.at.main_limit,
        hardware=first.hardware,
        cost_label=first.cost_label,
        is_calibrated=first.is_calibrated,
        gpus=gpus,
        watts=None if gpus is None else watts(first.hardware, gpus),
        dollars_an_hour=None if gpus is None else dollars_an_hour(first.hardware, gpus, prices),
        failed=failed,
        scaled={f"steps_{'faster' if f.search.step_time_factor < 1 else 'slower'}": f.value
                for f in scaled},
        warnings=_shown_probe(plain).warnings,
        refused_share=_shown_probe(plain).num_rejected / _shown_probe(plain).num_requests,
    )  # fmt: skip


def _shown_probe(plain: Sequence[Found]) -> Probe:
    """The probe at the answer, of the first seed; without an answer the last one made."""
    first = plain[0]
    return first.probes[-1] if first.at is None else first.at


def _value_and_spread(
    plain: Sequence[Found], members: Sequence[Found], unknown: str | None
) -> tuple[float, Spread]:
    values = [found.value for found in plain if found.value is not None]
    covers, not_covered = _sources(plain, members, unknown)
    num_draws = max(len(members), _num_traces(plain))
    if plain[0].search.kind == "rate":
        found = rate_interval(plain, members, _CONFIDENCE)
        low, high = (None, None) if found is None else (found.low, found.high)
        value = float(np.mean(values)) if found is None else found.estimate
        return value, Spread(_CONFIDENCE, num_draws, low, high, covers, not_covered)
    low, high = count_range(plain, members) if covers else (None, None)
    return max(values), Spread(None, num_draws, low, high, covers, not_covered)


def _sources(
    plain: Sequence[Found], members: Sequence[Found], unknown: str | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    covers, not_covered = [], []
    traces = _num_traces(plain)
    if traces > 1:
        covers.append(f"{traces} seeds")
    elif len(plain) > 1:
        not_covered.append("other seeds, which change nothing in this trace")
    else:
        not_covered.append("other seeds (--seeds 5 takes five)")
    if members:
        covers.append(f"the profile's errors ({len(members)} variants of it)")
    else:
        not_covered.append(f"the error of step times: {unknown}")
    if plain[0].lacks_host_time:
        not_covered.append("the host's time, which is 0 here (engine.host_overhead_s)")
    requests = number_of(_shown_probe(plain).num_requests, "request")
    # Measured on a p99 limit of 2 s of TTFT: 2,000 requests +5 %, 4,000 +4, 12,000 up to +3.
    not_covered.append(
        f"what a run of more than {requests} would pile up: near saturation it bears some percent"
        " less"
    )
    return tuple(covers), tuple(not_covered)


def _num_traces(founds: Sequence[Found]) -> int:
    return len({found.trace_sha256 for found in founds})
