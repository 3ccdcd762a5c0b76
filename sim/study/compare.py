"""A comparison of two studies: an effect a metric, and who wins and loses."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sim.rng import Streams
from sim.study.effects import (
    GROUP_METRICS,
    METRICS,
    Effect,
    Mask,
    compare_metric,
)
from sim.study.paired import Pair
from sim.wording import number_of

_NOTABLE = 0.01
_FEWEST_IN_GROUP = 30
_QUARTERS = ("shortest quarter", "second quarter", "third quarter", "longest quarter")


@dataclass(frozen=True, slots=True)
class Wins:
    """Of a group's requests, the shares whose E2E is lower and higher in B by more than 1 %."""

    group: str
    num_requests: int
    faster: float
    slower: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """All that is said of A and B; `notes` are for the reader, one sentence each."""

    a: str
    b: str
    seeds: tuple[int, ...]
    effects: tuple[Effect, ...]
    by_group: tuple[Effect, ...]
    wins: tuple[Wins, ...]
    notes: tuple[str, ...]


def compare_pairs(
    pairs: Sequence[Pair],
    a: str,
    b: str,
    *,
    confidence: float = 0.95,
    precision: float = 0.05,
    seed: int = 0,
) -> Comparison:
    """Compare from the runs of both; `seed` is of the bootstraps."""
    rng = Streams(seed).rng("compare.bootstrap")
    options: dict[str, Any] = {"confidence": confidence, "precision": precision}
    effects = [compare_metric(metric, pairs, rng, **options) for metric in METRICS]
    groups = groups_of(pairs)
    by_group = [
        compare_metric(metric, pairs, rng, rows=rows, group=name, **options)
        for name, rows in groups.items()
        for metric in GROUP_METRICS
    ]
    found = tuple(effect for effect in effects if effect is not None)
    of_groups = tuple(effect for effect in by_group if effect is not None)
    everyone = [np.ones(len(p.a.requests["priority"]), dtype=np.bool_) for p in pairs]
    wins = [wins_of(name, pairs, rows) for name, rows in {"all": everyone, **groups}.items()]
    return Comparison(
        a,
        b,
        tuple(pair.seed for pair in pairs),
        found,
        of_groups,
        tuple(wins),
        tuple(notes_of(pairs, len(found), len(of_groups), confidence)),
    )


def groups_of(pairs: Sequence[Pair]) -> dict[str, list[Mask]]:
    """Rows of each priority class (if there are two or more) and of each quarter by prompt length.

    The quarters' bounds are of all seeds together; equal bounds make fewer groups.
    """
    groups: dict[str, list[Mask]] = {}
    priority = [pair.a.requests["priority"] for pair in pairs]
    levels = np.unique(np.concatenate(priority))
    if len(levels) > 1:
        groups |= {f"priority {level}": [p == level for p in priority] for level in levels}
    length = [pair.a.requests["num_prompt_tokens"] for pair in pairs]
    bounds = np.percentile(np.concatenate(length), (25, 50, 75))
    if len(set(bounds)) == len(bounds):
        quarter = [np.searchsorted(bounds, values, side="left") for values in length]
        groups |= {
            f"prompt, {name}": [q == number for q in quarter]
            for number, name in enumerate(_QUARTERS)
        }
    return {
        name: rows for name, rows in groups.items() if min(map(np.sum, rows)) >= _FEWEST_IN_GROUP
    }


def wins_of(name: str, pairs: Sequence[Pair], rows: Sequence[Mask]) -> Wins:
    """Count request by request who is faster and who is slower in B."""
    a, b = (_joined(pairs, rows, arm) for arm in ("a", "b"))
    both = ~np.isnan(a) & ~np.isnan(b)
    change = b[both] / a[both] - 1
    count = int(both.sum())
    faster = float((change < -_NOTABLE).mean()) if count else 0.0
    slower = float((change > _NOTABLE).mean()) if count else 0.0
    return Wins(name, count, faster, slower)


def _joined(pairs: Sequence[Pair], rows: Sequence[Mask], arm: str) -> npt.NDArray[np.float64]:
    parts = [
        getattr(pair, arm).latencies["e2e_s"][mask] for pair, mask in zip(pairs, rows, strict=True)
    ]
    return np.concatenate(parts)


def notes_of(
    pairs: Sequence[Pair], num_effects: int, num_of_groups: int, confidence: float
) -> list[str]:
    """What a reader must know before he believes the verdicts."""
    chance = 1 - confidence
    also = f", and {chance * num_of_groups:.1f} of {num_of_groups} by group," * bool(num_of_groups)
    notes = [
        f"each interval is at {confidence:.0%}: were A and B alike, about "
        f"{chance * num_effects:.1f} of these {num_effects} metrics{also} would show a difference "
        "by chance"
    ]
    if len(pairs) == 1:
        notes.append(
            "one trace only, since seeds do not change it: intervals are of this trace, not of "
            "others like it; trace.poisson_rate_per_s gives every seed arrivals of its own"
        )
    for name in ("a", "b"):
        arms = [getattr(pair, name) for pair in pairs]
        not_steady = [arm.not_steady for arm in arms if arm.not_steady]
        if not_steady:
            runs = number_of(len(arms), "run")
            notes.append(
                f"{name.upper()} is not steady in {len(not_steady)} of {runs}: "
                f"{'; '.join(not_steady[0])}"
            )
        left = sum(arm.num_not_finished for arm in arms)
        if left:
            words = ("request did not finish; latencies lack it",
                     "requests did not finish; latencies lack them")  # fmt: skip
            notes.append(f"{name.upper()}: {number_of(left, *words)}")
        if not arms[0].is_calibrated:
            notes.append(f"{name.upper()}: step times are not calibrated ({arms[0].cost_label})")
        notes += [f"{name.upper()}, seed {pairs[0].seed}: {text}" for text in arms[0].warnings]
    return notes


def effect_rows(effects: Sequence[Effect]) -> list[dict[str, Any]]:
    """Effects as flat rows for a table."""
    return [
        {
            "metric": effect.metric.name,
            "group": effect.group,
            "a": effect.a,
            "b": effect.b,
            "is_relative": effect.is_relative,
            "change": effect.interval.estimate,
            "low": effect.interval.low,
            "high": effect.interval.high,
            "bootstrap_low": None if effect.bootstrap is None else effect.bootstrap.low,
            "bootstrap_high": None if effect.bootstrap is None else effect.bootstrap.high,
            "confidence": effect.interval.confidence,
            "method": effect.method,
            "verdict": effect.verdict,
            "is_better": effect.is_better,
            "seeds_needed": effect.seeds_needed,
        }
        for effect in effects
    ]


def to_json(comparison: Comparison, configs: Mapping[str, Any]) -> dict[str, Any]:
    """The comparison as JSON values, infinite ends as None."""
    rows = effect_rows((*comparison.effects, *comparison.by_group))
    return {
        "kind": "comparison",
        "a": comparison.a,
        "b": comparison.b,
        "seeds": list(comparison.seeds),
        "sentences": [effect.sentence() for effect in comparison.effects],
        "effects": [{key: _finite(value) for key, value in row.items()} for row in rows],
        "wins": [
            {"group": w.group, "requests": w.num_requests, "faster": w.faster, "slower": w.slower}
            for w in comparison.wins
        ],
        "notes": list(comparison.notes),
        "configs": dict(configs),
    }


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not np.isfinite(value) else value
