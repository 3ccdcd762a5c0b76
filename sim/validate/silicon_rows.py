"""Measured rows: one configuration of engine and load, with its mean TTFT and TPOT."""

import csv
from dataclasses import dataclass
from pathlib import Path

from sim.errors import StudyError

_COUNTS = ("isl", "osl", "batch_size", "tp_size")
_TIMES = ("silicon_ttft_ms", "silicon_tpot_ms")
_TEXTS = ("id", "backend", "backend_version", "model_path", "system", "mode", "gemm_quant_mode")
_MS = 1e-3


@dataclass(frozen=True, slots=True)
class SiliconRow:
    """Lengths in tokens, times in seconds; `concurrency` clients in a closed loop."""

    row_id: str
    engine: str
    engine_version: str
    model: str
    system: str
    mode: str
    weight_dtype: str
    num_prompt_tokens: int
    num_output_tokens: int
    concurrency: int
    tensor_parallel_size: int
    ttft_s: float
    tpot_s: float


def read_silicon_rows(file: Path) -> list[SiliconRow]:
    """Read a CSV file of measured rows.

    Raises:
        StudyError: the file can't be read, or an entry is missing or no number; line named.
    """
    try:
        with file.open(encoding="utf-8", newline="") as lines:
            reader = csv.DictReader(lines)
            _check_columns(file, reader.fieldnames or ())
            return [
                _row(row, f"{file}: line {number}") for number, row in enumerate(reader, start=2)
            ]
    except (OSError, UnicodeDecodeError) as error:
        raise StudyError(f"{file}: can't be read as measured rows: {error}") from error


def _check_columns(file: Path, names: object) -> None:
    known = set(names) if isinstance(names, (list, tuple)) else set()
    for name in (*_TEXTS, *_COUNTS, *_TIMES):
        if name not in known:
            raise StudyError(f"{file}: column {name} is missing")


def _row(row: dict[str, str], where: str) -> SiliconRow:
    isl, osl, batch, tp = (_count(row, name, where) for name in _COUNTS)
    ttft_s, tpot_s = (_time_s(row, name, where) for name in _TIMES)
    row_id, engine, version, model, system, mode, dtype = (row[name] for name in _TEXTS)
    return SiliconRow(
        row_id, engine, version, model, system, mode, dtype, isl, osl, batch, tp, ttft_s, tpot_s
    )


def _count(row: dict[str, str], name: str, where: str) -> int:
    """Whole numbers; disaggregated rows leave some empty, which counts as 0."""
    text = row[name] or "0"
    try:
        return int(float(text))
    except ValueError as error:
        raise StudyError(f"{where}: {name} is {text!r}; it must be a whole number") from error


def _time_s(row: dict[str, str], name: str, where: str) -> float:
    try:
        value = float(row[name])
    except ValueError as error:
        raise StudyError(f"{where}: {name} is {row[name]!r}; it must be milliseconds") from error
    if not value > 0:
        raise StudyError(f"{where}: {name} is {value:g}; a measured time is above 0")
    return value * _MS
