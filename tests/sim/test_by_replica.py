"""Sums, extremes and predecessors by replica are those of each replica's own rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.metrics.by_replica import ByReplica

ROWS = st.lists(st.tuples(st.sampled_from([0, 1, 2, 5, 70_000]), st.integers(0, 9)), min_size=1)


@given(rows=ROWS, is_one=st.booleans())
def test_each_replica_has_its_own_rows(rows, is_one):
    replica = np.array([0 if is_one else each for each, _ in rows], dtype=np.int32)
    column = np.array([value for _, value in rows])
    groups = ByReplica(replica)
    ids = np.unique(replica)
    own = [column[replica == each] for each in ids]
    assert groups.ids.tolist() == ids.tolist()
    assert groups.sums(column).tolist() == [rows.sum() for rows in own]
    assert groups.most(column).tolist() == [rows.max() for rows in own]
    assert groups.last(column).tolist() == [rows[-1] for rows in own]
    assert groups.counts(len(column)).tolist() == [len(rows) for rows in own]
    assert groups.sums(column * 0.1) == pytest.approx([rows.sum() * 0.1 for rows in own])


@given(rows=ROWS)
def test_the_row_before_is_that_of_the_same_replica(rows):
    replica = np.array([each for each, _ in rows], dtype=np.int32)
    column = np.array([value for _, value in rows])
    groups = ByReplica(replica)
    first = 100 + np.arange(len(groups.ids))
    last = dict(zip(groups.ids.tolist(), first.tolist(), strict=True))
    for found, (each, value) in zip(groups.shifted(column, first), rows, strict=True):
        assert found == last[each]
        last[each] = value
