"""Latency against throughput as load rises: a line a configuration, from the rows of a sweep."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sim.config import resolve_study
from sim.errors import StudyError
from sim.run_result import Columns
from sim.study.probe import POISSON, SCALE
from sim.study.row import Row

FloatArray = npt.NDArray[np.float64]
CONCURRENCY = "load.concurrency"

_FIGURES = {
    "arrival_rate_per_s": "load.arrival_rate_per_s",
    "requests_per_s_per_gpu": "per_gpu.requests_per_s",
    "output_tokens_per_s_per_gpu": "per_gpu.output_tokens_per_s",
    "ttft_mean_s": "latency.ttft_s.mean",
    "ttft_p50_s": "latency.ttft_s.p50",
    "ttft_p99_s": "latency.ttft_s.p99",
    "tpot_mean_s": "latency.tpot_s.mean",
    "tpot_p50_s": "latency.tpot_s.p50",
    "tpot_p99_s": "latency.tpot_s.p99",
}
MEASURED = ("output_tokens_per_s_per_gpu", "ttft_mean_s", "ttft_p50_s", "ttft_p99_s", "tpot_mean_s")
"""Columns that measured points may have; the first must be there."""


def load_grid(values: Mapping[str, Any], rates: Sequence[float]) -> dict[str, list[float]]:
    """The grid key and its values that give these arrival rates, in requests a second.

    A study with Poisson arrivals takes the rates themselves; another has its own arrivals
    compressed or stretched, so its trace is read to learn its rate.
    """
    trace = values.get("trace")
    if isinstance(trace, Mapping) and trace.get("poisson_rate_per_s") is not None:
        return {POISSON: list(rates)}
    plain = {**values, "trace": {**dict(trace or {})}}
    plain["trace"].pop("rate_scale", None)
    study = resolve_study(plain, "the study")
    duration_s = study.trace.duration_s
    if duration_s <= 0:
        raise StudyError("trace: all requests arrive at once; there is no rate to scale")
    own = (len(study.trace) - 1) / duration_s
    return {SCALE: [rate / own for rate in rates]}


def curve_lines(rows: Sequence[Row], keys: Sequence[str], load_key: str) -> dict[str, Columns]:
    """A table a configuration, by its label, with rows by rising load.

    Each row is the mean over seeds; `is_saturated` if most of them are; `is_knee` marks the row of
    the largest power. Points that failed are left out; of those whose run is too short for rates
    that last, `too_short` says why and the rates are NaN.
    """
    others = [key for key in keys if key != load_key]
    groups: dict[str, dict[float, list[Row]]] = {}
    for row in rows:
        if not row.get("error"):
            label = ", ".join(f"{_short(key)} {row[key]}" for key in others) or "study"
            groups.setdefault(label, {}).setdefault(float(row[load_key]), []).append(row)
    return {label: _line(by_load) for label, by_load in groups.items()}


def _line(by_load: Mapping[float, Sequence[Row]]) -> Columns:
    loads = sorted(by_load)
    columns: dict[str, Any] = {"load": np.array(loads)}
    for name, path in _FIGURES.items():
        columns[name] = np.array([_mean([_figure(row, path) for row in by_load[x]]) for x in loads])
    columns["too_short"] = np.array([_too_short(by_load[x]) for x in loads], dtype=np.str_)
    saturated = [np.mean([bool(r["load.is_saturated"]) for r in by_load[x]]) > 0.5 for x in loads]
    columns["is_saturated"] = np.array(saturated, dtype=np.bool_)
    columns["num_seeds"] = np.array([len(by_load[x]) for x in loads])
    columns["is_knee"] = np.zeros(len(loads), dtype=np.bool_)
    found = knee(columns["output_tokens_per_s_per_gpu"], columns["ttft_mean_s"], saturated)
    if found is not None:
        columns["is_knee"][found] = True
    return columns


def _figure(row: Row, path: str) -> float | None:
    """A figure of a run; none of the rates of one that is too short for them."""
    is_unknown = path.startswith("per_gpu.") and row.get("per_gpu.too_short")
    return None if is_unknown else row.get(path)


def _too_short(rows: Sequence[Row]) -> str:
    """Why none of the seeds tells the rates; empty if one does."""
    reasons = [str(row.get("per_gpu.too_short", "")) for row in rows]
    return reasons[0] if all(reasons) else ""


def knee(throughput: FloatArray, latency_s: FloatArray, is_saturated: npt.ArrayLike) -> int | None:
    """The point of the largest power, throughput / latency (Kleinrock, ICC 1979).

    Before it more load buys more throughput than it costs latency; after it less. Saturated points
    have no lasting latency and don't count; None if fewer than three are left, or if the largest
    power is at an end, where the knee need not be.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        power = np.where(np.asarray(is_saturated), np.nan, throughput / latency_s)
    known = np.flatnonzero(np.isfinite(power))
    if len(known) < 3:
        return None
    best = int(known[np.argmax(power[known])])
    at_end = best == known[0] or (best == known[-1] and known[-1] == len(power) - 1)
    return None if at_end else best


def curve_rows(lines: Mapping[str, Columns]) -> list[Row]:
    """The lines as rows of one table, the label in `configuration`."""
    return [
        {"configuration": label, **{name: column[i].item() for name, column in columns.items()}}
        for label, columns in lines.items()
        for i in range(len(columns["load"]))
    ]


def read_measured(text: str, source: str) -> Columns:
    """Measured points from CSV with a header of names among `MEASURED`.

    Raises:
        StudyError: a name is unknown, the throughput is missing, or a value is no number.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    names = [name.strip() for name in lines[0].split(",")] if lines else []
    unknown = [name for name in names if name not in MEASURED]
    if MEASURED[0] not in names or unknown:
        raise StudyError(
            f"{source}: the header must have {MEASURED[0]} and any of {', '.join(MEASURED[1:])}; "
            f"it has {', '.join(names) or 'nothing'}"
        )
    try:
        values = np.array([[float(cell) for cell in line.split(",")] for line in lines[1:]])
        columns = values.reshape(-1, len(names)).T
    except ValueError as error:
        raise StudyError(f"{source}: every cell must be a number ({error})") from error
    return dict(zip(names, columns, strict=True))


def _short(key: str) -> str:
    return key.rpartition(".")[2]


def _mean(values: Sequence[float | None]) -> float:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else float("nan")
