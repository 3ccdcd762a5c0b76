"""Are configurations at least in the right order? A prediction may be off and choose well."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

from scipy.stats import spearmanr

from sim.validate.comparison import Comparison

Time = Callable[[Comparison], float]
_FEWEST = 3


@dataclass(frozen=True, slots=True)
class OrderAgreement:
    """How far the order of predictions is that of the measurements.

    `spearman` is the rank correlation over all rows. Pairs are those of rows that serve the same
    lengths, whose measured times differ; `pairs_in_order` of them are predicted in that order.
    """

    num_rows: int
    spearman: float
    num_pairs: int
    pairs_in_order: int


def tpot_order(rows: Sequence[Comparison]) -> OrderAgreement | None:
    """TPOT over all rows; None if there are fewer than three."""
    return _order(rows, lambda row: row.measured_tpot_s, lambda row: row.predicted_tpot_s)


def ttft_order(rows: Sequence[Comparison]) -> OrderAgreement | None:
    """TTFT over the rows that are not saturated; None if there are fewer than three."""
    unsaturated = [row for row in rows if not row.is_saturated]
    return _order(unsaturated, lambda row: row.measured_ttft_s, lambda row: row.predicted_ttft_s)


def _order(rows: Sequence[Comparison], measured: Time, predicted: Time) -> OrderAgreement | None:
    if len(rows) < _FEWEST:
        return None
    correlation = spearmanr([measured(row) for row in rows], [predicted(row) for row in rows])
    pairs = [
        (measured(a) - measured(b), predicted(a) - predicted(b))
        for a, b in combinations(rows, 2)
        if _lengths(a) == _lengths(b) and measured(a) != measured(b)
    ]
    in_order = sum(by_measure * by_prediction > 0 for by_measure, by_prediction in pairs)
    return OrderAgreement(len(rows), float(correlation.statistic), len(pairs), in_order)


def _lengths(row: Comparison) -> tuple[str, ...]:
    return tuple(group for group in row.groups if group.endswith("tokens"))
