"""A measured figure beside the predicted one, and what many of them come to."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Comparison:
    """One measured row and its prediction, in seconds.

    `groups` names the regions that the row belongs to ("tp 2", "batch 8"), for tables of bias.
    `is_saturated`: requests queued for memory or seats, so that TTFT measures the queue.
    """

    name: str
    groups: tuple[str, ...]
    measured_ttft_s: float
    predicted_ttft_s: float
    measured_tpot_s: float
    predicted_tpot_s: float
    is_saturated: bool = False

    @property
    def ttft_error(self) -> float:
        """Signed relative error of TTFT."""
        return self.predicted_ttft_s / self.measured_ttft_s - 1.0

    @property
    def tpot_error(self) -> float:
        """Signed relative error of TPOT."""
        return self.predicted_tpot_s / self.measured_tpot_s - 1.0


@dataclass(frozen=True, slots=True)
class ErrorSummary:
    """Mean absolute and mean signed relative error of some rows."""

    label: str
    num_rows: int
    mape: float
    bias: float


def tpot_summary(label: str, rows: Sequence[Comparison]) -> ErrorSummary | None:
    """TPOT over all rows; None if there are none."""
    return _summary(label, rows, lambda row: row.tpot_error)


def ttft_summary(label: str, rows: Sequence[Comparison]) -> ErrorSummary | None:
    """TTFT over the rows that are not saturated; None if there are none."""
    unsaturated = [row for row in rows if not row.is_saturated]
    return _summary(label, unsaturated, lambda row: row.ttft_error)


def by_group(rows: Sequence[Comparison]) -> dict[str, list[Comparison]]:
    """Rows by each region, in the order in which regions first appear."""
    groups: dict[str, list[Comparison]] = {}
    for row in rows:
        for group in row.groups:
            groups.setdefault(group, []).append(row)
    return groups


def _summary(
    label: str, rows: Sequence[Comparison], error: Callable[[Comparison], float]
) -> ErrorSummary | None:
    if not rows:
        return None
    errors = [error(row) for row in rows]
    mape = sum(map(abs, errors)) / len(errors)
    return ErrorSummary(label, len(errors), mape, sum(errors) / len(errors))
