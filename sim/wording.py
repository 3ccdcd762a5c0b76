"""Counts in sentences."""


def number_of(number: int, one: str, many: str = "") -> str:
    """`1 point`, `1,000 points`: the number and what follows it, in the right number.

    `many` is the plural, where it is not `one` with an s.
    """
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"
