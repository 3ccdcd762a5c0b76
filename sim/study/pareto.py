"""The settings that no other one beats in both cost and latency."""

import numpy as np
import numpy.typing as npt


def pareto_front(cost: npt.ArrayLike, latency: npt.ArrayLike) -> npt.NDArray[np.intp]:
    """Rows on the front, by rising cost: no other row is as cheap and as fast and better in one.

    Less is better in both. Rows with a NaN are never on it; of equal rows the first is.
    """
    x, y = np.asarray(cost, dtype=np.float64), np.asarray(latency, dtype=np.float64)
    rows = np.flatnonzero(np.isfinite(x) & np.isfinite(y))
    rows = rows[np.lexsort((rows, y[rows], x[rows]))]
    front, best = [], np.inf
    for row in rows:
        if y[row] < best:
            front.append(row)
            best = y[row]
    return np.array(front, dtype=np.intp)
