"""ServeGen's client parameters as a generator: every client its own rates, gaps and lengths.

A folder holds, for each client, `chunk-<i>-trace.csv` (window start s, requests a second, cv,
family of the gaps: Gamma, Weibull or empty, and their fitted shape and scale) and
`chunk-<i>-dataset.json` (for stretches of time, the probability of every prompt and output
length). Gaps are drawn with the fitted shape and the recorded rate: the fitted scales do not give
that rate. Prompt and output lengths are drawn independently, as the published data hold no pairs.
Source: github.com/alibaba/ServeGen.
"""

from __future__ import annotations

import ast
import csv
import json
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from traces.arrays import FloatArray, IntArray
from traces.errors import TraceError, bad_place
from traces.generators.arrivals import check_positive
from traces.source import TraceSource
from traces.trace import Trace

_NUM_CELLS = 6
_FAMILIES = ("", "Gamma", "Weibull")


@dataclass(frozen=True, slots=True)
class _Window:
    start_s: float
    length_s: float
    rate_per_s: float
    family: str
    shape: float


@dataclass(frozen=True, slots=True)
class _Lengths:
    start_s: float
    values: IntArray
    shares: FloatArray


@dataclass(frozen=True, slots=True)
class _Client:
    name: str
    windows: tuple[_Window, ...]
    prompt: tuple[_Lengths, ...]
    output: tuple[_Lengths, ...]


def from_servegen(
    folder: str | os.PathLike[str],
    start_s: float,
    end_s: float,
    rng: np.random.Generator,
    *,
    rate_scale: float = 1.0,
) -> Trace:
    """Requests of all clients of a folder from `start_s` to `end_s`; the tenant is the client.

    Raises:
        TraceError: no client in the folder, a file that is wrong, no request in that time.
    """
    check_positive("rate_scale", rate_scale)
    if not 0 <= start_s < end_s:
        raise TraceError(f"servegen: {start_s!r} to {end_s!r} is wrong; the first must be smaller")
    clients = [_client(path) for path in _trace_files(Path(folder))]
    parts = [
        _requests(client, start_s, end_s, rate_scale, client_rng)
        for client, client_rng in zip(clients, rng.spawn(len(clients)), strict=True)
    ]
    times, prompts, outputs = (np.concatenate(column) for column in zip(*parts, strict=True))
    if not len(times):
        raise TraceError(f"{folder}: no client sends anything from {start_s} to {end_s} s")
    tenants = [client.name for client, part in zip(clients, parts, strict=True) for _ in part[0]]
    order = np.argsort(times, kind="stable")
    return Trace.from_columns(
        times[order] - times.min(),
        prompts[order],
        outputs[order],
        tenant=[tenants[row] for row in order],
        source=TraceSource(name=f"servegen:{folder}", format="servegen", num_rows_read=len(times)),
    )


def _trace_files(folder: Path) -> list[Path]:
    found = sorted(folder.glob("chunk-*-trace.csv"), key=lambda path: (len(path.name), path.name))
    if not found:
        raise TraceError(f"{folder}: no client (chunk-<i>-trace.csv) in this folder")
    return found


def _client(path: Path) -> _Client:
    dataset = path.with_name(path.name.replace("-trace.csv", "-dataset.json"))
    lengths = _read_lengths(dataset)
    return _Client(path.name.removesuffix("-trace.csv"), tuple(_windows(path)), *lengths)


def _windows(path: Path) -> Iterator[_Window]:
    with path.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.reader(file) if row]
    starts = [_number(path, line, row, 0) for line, row in enumerate(rows, start=1)]
    for line, row in enumerate(rows, start=1):
        family = row[3] if len(row) == _NUM_CELLS else None
        if family not in _FAMILIES:
            right = "start, rate, cv, '' or Gamma or Weibull, and two parameters"
            raise bad_place(str(path), f"line {line}", f"{row!r} is wrong; it must be {right}")
        after = starts[line] if line < len(starts) else starts[-1] + (starts[-1] - starts[-2])
        rate, shape = _number(path, line, row, 1), _number(path, line, row, 4)
        yield _Window(starts[line - 1], after - starts[line - 1], rate, family, shape)


def _number(path: Path, line: int, row: list[str], cell: int) -> float:
    try:
        value = float(row[cell])
    except (ValueError, IndexError):
        value = -1.0
    if not 0 <= value < float("inf"):
        what = f"cell {cell + 1} of {row!r} is wrong; it must be a number >= 0"
        raise bad_place(str(path), f"line {line}", what)
    return value


def _read_lengths(path: Path) -> tuple[tuple[_Lengths, ...], tuple[_Lengths, ...]]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        tables = [
            tuple(_lengths(content, start, key) for start in content)
            for key in ("input_tokens", "output_tokens")
        ]
    except (OSError, ValueError, SyntaxError, KeyError, TypeError, AttributeError) as error:
        raise TraceError(f"{path}: no readable lengths of a client ({error})") from None
    used = [tuple(each for each in table if len(each.values)) for table in tables]
    if not all(used):
        raise TraceError(f"{path}: holds no lengths")
    return used[0], used[1]


def _lengths(content: dict[str, Any], start: str, key: str) -> _Lengths:
    """One stretch; its shares are written as the text of a dictionary."""
    shares: dict[int, float] = ast.literal_eval(content[start][key])
    values = np.array([max(int(value), 1) for value in shares], dtype=np.int64)
    weights = np.array(list(shares.values()), dtype=np.float64)
    return _Lengths(float(start), values, weights / weights.sum() if len(weights) else weights)


def _requests(
    client: _Client, start_s: float, end_s: float, scale: float, rng: np.random.Generator
) -> tuple[FloatArray, IntArray, IntArray]:
    times = [np.zeros(0)]
    prompts: list[IntArray] = [np.zeros(0, dtype=np.int64)]
    outputs: list[IntArray] = [np.zeros(0, dtype=np.int64)]
    for window in client.windows:
        if window.start_s + window.length_s <= start_s or window.start_s >= end_s:
            continue
        if not window.rate_per_s:
            continue
        at_s = window.start_s + _times_in(window, scale, rng)
        at_s = at_s[(at_s >= start_s) & (at_s < end_s)]
        times.append(at_s)
        prompts.append(_drawn(client.prompt, window.start_s, len(at_s), rng))
        outputs.append(_drawn(client.output, window.start_s, len(at_s), rng))
    return np.concatenate(times), np.concatenate(prompts), np.concatenate(outputs)


def _times_in(window: _Window, scale: float, rng: np.random.Generator) -> FloatArray:
    """Instants within a window: gaps of its family, from a random instant on."""
    rate = window.rate_per_s * scale
    number = int(rate * window.length_s * 1.5 + 20)
    last_s = _first_gap_s(window, rate, rng)
    times = np.array([last_s])
    while last_s < window.length_s:
        more = last_s + np.cumsum(_gaps_s(window, rate, number, rng))
        times, last_s = np.concatenate([times, more]), float(more[-1])
    return times[(times >= 0) & (times < window.length_s)]


def _first_gap_s(window: _Window, rate: float, rng: np.random.Generator) -> float:
    """What is left of the gap that holds a random instant.

    Such a gap is longer than others, the more so the more they differ: its density goes with its
    length. Begun at a mean gap, bursty clients of few requests would send too many.
    """
    shape, left = window.shape, float(rng.random())
    if window.family == "Weibull" and shape > 0:
        longer = float(rng.gamma(1 + 1 / shape)) ** (1 / shape)
        return float(left * longer / (rate * math.gamma(1 + 1 / shape)))
    if window.family == "Gamma" and shape > 0:
        return left * float(rng.gamma(shape + 1, 1 / (rate * shape)))
    return float(rng.exponential(1 / rate))


def _gaps_s(window: _Window, rate: float, number: int, rng: np.random.Generator) -> FloatArray:
    shape = window.shape
    if window.family == "Weibull" and shape > 0:
        return rng.weibull(shape, number) / (rate * math.gamma(1 + 1 / shape))
    if window.family == "Gamma" and shape > 0:
        return rng.gamma(shape, 1 / (rate * shape), number)
    return rng.exponential(1 / rate, number)


def _drawn(
    tables: tuple[_Lengths, ...], at_s: float, number: int, rng: np.random.Generator
) -> IntArray:
    """Lengths of the stretch that holds `at_s`; of the nearest before or after without one."""
    before = [table for table in tables if table.start_s <= at_s]
    table = before[-1] if before else tables[0]
    return table.values[rng.choice(len(table.values), size=number, p=table.shares)]
