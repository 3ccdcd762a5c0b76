"""Finds and reads the CSV files of one GPU, model and tensor-parallel size."""

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from calibration.errors import CalibrationError
from calibration.load_model import canonical_model_name
from calibration.model_spec import ModelSpec
from calibration.profile_tables import number

_DENSE = re.compile(r"^(?P<gpu>[^_]+)_(?P<model>.+)_(?P<dtype>[^_]+)_tp(?P<tp>\d+)_dense\.csv$")
_TEXTS = ("layer", "regime")
_LONGEST_US = 1e6
_SHORTEST_US = 0.2
_NOT_A_TIME = "it must be microseconds of one layer's operation"


@dataclass(frozen=True, slots=True)
class LayerwiseFiles:
    """The files of one profile: `<stem>_dense.csv`, `_per_sequence.csv`, `_attention.csv`, and
    `_skew.csv` if it was measured.
    """

    folder: Path
    stem: str
    gpu: str
    meta: dict[str, Any]

    def has(self, part: str) -> bool:
        """Whether there is such a file."""
        return self._file(part).is_file()

    def _file(self, part: str) -> Path:
        return self.folder / f"{self.stem}_{part}.csv"

    def rows(
        self, part: str, keys: Sequence[str], times: Sequence[str] = ("time_us",)
    ) -> list[tuple[Any, ...]]:
        """Return (keys..., times...) of each row; counts are whole numbers, `layer` and `regime`
        texts.

        Raises:
            CalibrationError: the file is missing or has a bad entry, named by line.
        """
        file = self._file(part)
        try:
            with file.open(encoding="utf-8", newline="") as lines:
                return _parse(csv.DictReader(lines), file, keys, times)
        except (OSError, UnicodeDecodeError) as error:
            raise CalibrationError(f"{file}: can't be read as a profile: {error}") from error


def find_layerwise_files(folder: Path, model: ModelSpec, tp: int, gpu: str) -> LayerwiseFiles:
    """Return the files for a model at a tensor-parallel size; `gpu` is the name in the files.

    Raises:
        CalibrationError: there are none; what the folder has is named.
    """
    found = [match for match in map(_DENSE.match, _names(folder)) if match]
    for match in found:
        owner_and_name = match["model"].split("_", 1)[-1]
        is_model = canonical_model_name(owner_and_name) == canonical_model_name(model.name)
        if is_model and int(match["tp"]) == tp and match["gpu"].lower() == gpu.lower():
            stem = match.string.removesuffix("_dense.csv")
            meta = _meta(folder / f"{match['gpu']}_{match['model']}_meta.yaml")
            return LayerwiseFiles(folder, stem, match["gpu"], meta)
    known = ", ".join(sorted(m.string.removesuffix("_dense.csv") for m in found))
    raise CalibrationError(
        f"{folder}: has no profile of {model.name} on {gpu} with tensor parallel {tp};"
        f" it has {known or 'none'}"
    )


def _names(folder: Path) -> list[str]:
    if not folder.is_dir():
        raise CalibrationError(f"{folder}: no such folder")
    return sorted(child.name for child in folder.iterdir())


def _meta(file: Path) -> dict[str, Any]:
    try:
        meta = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return {}
    return meta if isinstance(meta, dict) else {}


def _parse(
    reader: Any, file: Path, keys: Sequence[str], times: Sequence[str]
) -> list[tuple[Any, ...]]:
    for key in (*keys, *times):
        if key not in (reader.fieldnames or ()):
            raise CalibrationError(
                f"{file}: column {key} is missing; it has {', '.join(reader.fieldnames or ())}"
            )
    rows: list[tuple[Any, ...]] = []
    seen: set[tuple[Any, ...]] = set()
    for line, row in enumerate(reader, start=2):
        where = f"{file}: line {line}"
        call = tuple(_key(key, row[key], where) for key in keys)
        if call in seen:
            raise CalibrationError(f"{where}: {_described(keys, call)} stands there twice")
        seen.add(call)
        rows.append((*call, *(_time(row[name], f"{where}: {name}") for name in times)))
    if not rows:
        raise CalibrationError(f"{file}: has no rows")
    return rows


def _key(key: str, text: str | None, where: str) -> Any:
    if key in _TEXTS and text:
        return text
    if text is None or not text.isdigit():
        raise CalibrationError(f"{where}: {key} is {text!r}; it must be a whole number")
    return int(text)


def _time(text: str | None, where: str) -> float:
    try:
        time_us = number(float(text or "nan"), where)
    except ValueError as error:
        if isinstance(error, CalibrationError):
            raise
        raise CalibrationError(f"{where} is {text!r}; {_NOT_A_TIME}") from error
    if not _SHORTEST_US <= time_us <= _LONGEST_US:
        raise CalibrationError(f"{where} is {time_us:g}; {_NOT_A_TIME}")
    return time_us


def _described(keys: Sequence[str], call: tuple[Any, ...]) -> str:
    return ", ".join(f"{key}={value}" for key, value in zip(keys, call, strict=True))
