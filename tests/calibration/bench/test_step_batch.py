"""Batches: rows, positions and slots of pieces."""

import numpy as np

from calibration.bench.axes import Limits
from calibration.bench.held_out import random_mixes
from calibration.bench.step_batch import Piece, pack
from calibration.step_shape import StepShape
from sim.rng import Streams

LIMITS = Limits(
    max_num_batched_tokens=64, max_num_seqs=8, max_model_len=256, max_context_tokens=1024
)


def piece(new: int, computed: int, blocks: list[int], *, needs_logits: bool = True) -> Piece:
    return Piece(np.arange(new) + 7, computed, np.array(blocks), needs_logits)


def test_rows_positions_and_slots_by_hand() -> None:
    batch = pack(
        [piece(1, 5, [3, 9]), piece(1, 0, [2]), piece(3, 3, [6, 4], needs_logits=False)], 4
    )
    assert batch.token_ids.tolist() == [7, 7, 7, 8, 9]
    assert batch.positions.tolist() == [5, 0, 3, 4, 5]
    # Position 5 is offset 1 of the second block; position 3 the last of the first.
    assert batch.slots.tolist() == [9 * 4 + 1, 2 * 4, 6 * 4 + 3, 4 * 4, 4 * 4 + 1]
    assert batch.logit_rows.tolist() == [0, 1]


def test_the_shape_counts_contexts_as_the_simulator_does() -> None:
    batch = pack([piece(1, 5, [3, 9]), piece(1, 2, [5]), piece(3, 3, [6, 4])], 4)
    assert batch.shape == StepShape(5, 3, 2, 9, ((3, 3),), 6)


def test_random_mixes_stay_within_the_limits() -> None:
    for sizes in random_mixes(Streams(3).rng("mixes"), LIMITS, 300):
        assert 1 <= sum(new for new, _ in sizes) <= LIMITS.max_num_batched_tokens
        assert sum(new + computed for new, computed in sizes) <= LIMITS.max_context_tokens
        assert all(new + computed <= LIMITS.max_model_len for new, computed in sizes)
        assert sum(new == 1 for new, _ in sizes) <= LIMITS.max_num_seqs
        news = [new > 1 for new, _ in sizes]
        assert news == sorted(news)
