"""Counts the steps of a run that lie beyond what its cost model was measured on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from calibration import CostModel, CostProvenance, HasCoverage, StepShape, decode_shape
from sim.rows import num_rows, pieces
from sim.run_result import Columns

_DIGITS = "0123456789"


@dataclass(slots=True)
class _Reasons:
    """How often each reason was given, and one example of it."""

    counts: dict[str, int] = field(default_factory=dict)
    examples: dict[str, str] = field(default_factory=dict)

    def add(self, reason: str) -> None:
        what = reason[: next((i for i, c in enumerate(reason) if c in _DIGITS), None)].strip()
        self.counts[what] = self.counts.get(what, 0) + 1
        self.examples.setdefault(what, reason)

    def sentences(self) -> str:
        parts = [f"{what} in {n:,} ({self.examples[what]})" for what, n in self.counts.items()]
        return "; ".join(sorted(parts))


class CoverageCount:
    """A cost model that passes everything through and notes steps with chunks out of range.

    Steps without chunks are many, and skipped in runs; they are counted afterwards, from their
    rows. Those have all that the range of a decode step depends on.
    """

    def __init__(self, cost: CostModel, coverage: HasCoverage) -> None:
        self.decode_times_s = cost.decode_times_s
        self._cost = cost
        self._out_of_range = coverage.out_of_range
        self._step_time_s = cost.step_time_s
        self._with_chunks = _Reasons()

    @property
    def model(self) -> CostModel:
        """The cost model itself."""
        return self._cost

    @property
    def provenance(self) -> CostProvenance:
        """Where the times come from."""
        return self._cost.provenance

    def step_time_s(self, shape: StepShape) -> float:
        """Return the device time of one step."""
        if shape.chunks:
            reason = self._out_of_range(shape)
            if reason is not None:
                self._with_chunks.add(reason)
        return self._step_time_s(shape)

    def warnings(self, steps: Columns) -> tuple[str, ...]:
        """One sentence if steps were extrapolated: their share, and an example of each reason."""
        reasons = _Reasons(dict(self._with_chunks.counts), dict(self._with_chunks.examples))
        for piece in pieces(steps, ("num_prefill_tokens", "num_decodes", "decode_context_tokens")):
            for num_decodes, context_tokens in self._suspects(piece):
                reason = self._out_of_range(decode_shape(num_decodes, context_tokens))
                if reason is not None:
                    reasons.add(reason)
        num_steps, num_beyond = num_rows(steps), sum(reasons.counts.values())
        if not num_beyond:
            return ()
        return (
            f"{100 * num_beyond / num_steps:.2g} % of steps ({num_beyond:,} of {num_steps:,}) lie"
            f" beyond the calibrated range and were extrapolated: {reasons.sentences()}",
        )

    def _suspects(self, steps: Columns) -> Iterator[tuple[int, int]]:
        """Decode steps of those batch sizes whose least or longest context is out of range."""
        is_decode = steps["num_prefill_tokens"] == 0
        sizes = steps["num_decodes"][is_decode]
        contexts = steps["decode_context_tokens"][is_decode]
        order = np.lexsort((contexts, sizes))
        sizes, contexts = sizes[order], contexts[order]
        starts = np.flatnonzero(np.diff(sizes, prepend=-1))
        for own in np.split(np.arange(len(sizes)), starts[1:]):
            if not len(own):
                continue
            size, ends = int(sizes[own[0]]), (int(contexts[own[0]]), int(contexts[own[-1]]))
            if any(self._out_of_range(decode_shape(size, end)) is not None for end in ends):
                yield from ((size, context) for context in contexts[own].tolist())


def counted(cost: CostModel) -> CostModel:
    """Return the cost model with a count around it, or as it is if it has no range."""
    return CoverageCount(cost, cost) if isinstance(cost, HasCoverage) else cost


def coverage_warnings(cost: CostModel, steps: Columns) -> tuple[str, ...]:
    """What a counted cost model has to say after a run."""
    return cost.warnings(steps) if isinstance(cost, CoverageCount) else ()
