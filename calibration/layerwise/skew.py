"""Timings of decode batches of unlike contexts, where a profile has them (`<stem>_skew.csv`)."""

from calibration.decode_skew import SkewCase
from calibration.layerwise.files import LayerwiseFiles

_KEYS = ("regime", "n", "nb", "pc", "kp", "kvs", "kv_big")
_TIMES = ("t_mean_us", "t_max_us", "t_skew_us")


def read_skew(files: LayerwiseFiles) -> tuple[list[SkewCase], list[SkewCase]]:
    """Return the batches without chunks and those with, of `nb` long and `n - nb` short contexts.

    `t_mean_us` and `t_max_us` are of as many equal contexts, of the mean and of the longest; the
    times of mixed batches have the chunk in them, on all three sides.

    Raises:
        CalibrationError: a bad entry, named by line.
    """
    cases: dict[str, list[SkewCase]] = {"pure": [], "mixed": []}
    if files.has("skew"):
        for regime, count, *_, even_us, longest_us, time_us in files.rows("skew", _KEYS, _TIMES):
            cases.setdefault(regime, []).append(SkewCase(count, time_us, even_us, longest_us))
    return cases["pure"], cases["mixed"]
