"""Contexts of a batch in which a few requests are much longer than the others."""

_LONG_SHARE = 8  # one request of so many, at least one
_TIMES_AS_LONG = 4


def skewed_contexts(mean: int, count: int) -> list[int]:
    """Return `count` contexts with this mean (within rounding): the long ones come first.

    An eighth of the requests have four times the context of the others.
    """
    num_long = max(1, count // _LONG_SHARE) if count > 1 else 0
    short = mean * count / (count + num_long * (_TIMES_AS_LONG - 1))
    contexts = [_TIMES_AS_LONG * short] * num_long + [short] * (count - num_long)
    return [max(1, round(context)) for context in contexts]
