"""Counts in sentences."""

import pytest

from sim.wording import number_of


@pytest.mark.parametrize(
    ("number", "said"), [(0, "0 points"), (1, "1 point"), (2, "2 points"), (1_000, "1,000 points")]
)
def test_only_one_is_singular(number, said):
    assert number_of(number, "point") == said


def test_a_plural_of_its_own():
    assert number_of(1, "point is", "points are") == "1 point is"
    assert number_of(3, "point is", "points are") == "3 points are"
