"""Finds a model by name, or reads its config.json."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from calibration.errors import CalibrationError
from calibration.model_config import parse_model_config
from calibration.model_spec import ModelSpec
from calibration.names import unknown_name
from calibration.quantization import NAMED, Quantization
from calibration.shipped import find_entry, read_table


def model_names() -> list[str]:
    """Return the names of all models that are built in."""
    return list(read_table("models.json", "models"))


def load_model(name_or_path: str | Path, quantization: str | None = None) -> ModelSpec:
    """Return a model by its name, or from a config.json or a folder that holds one.

    Names are those of `model_names()`, or a Hugging Face name in any case
    ("meta-llama/Llama-3.1-8B-Instruct"); a last "-fp8", "-awq" or "-gptq" is a quantisation.

    Args:
        name_or_path: name, file or folder.
        quantization: fp8, awq or gptq: the weights of the linear layers in that format.

    Raises:
        CalibrationError: unknown name (the nearest is offered), no such file, or a config that
            can't be used (file and key named).
    """
    path = Path(name_or_path)
    name = str(name_or_path).strip()
    if path.suffix == ".json" or (name and path.exists() and not _is_built_in(name)):
        model = _read_config(path)
    else:
        model = _built_in(name)
    return model if quantization is None else _quantised(model, quantization)


def canonical_model_name(name: str) -> str:
    """Return the built-in name that `name` stands for, without its quantisation, else its stem."""
    short, _ = _split_quantization(_short_name(name))
    return find_entry(read_table("models.json", "models"), short) or short


def _read_config(path: Path) -> ModelSpec:
    file = path / "config.json" if path.is_dir() else path
    config = _read_json_object(file)
    name = config.get("_name_or_path") or file.resolve().parent.name
    return parse_model_config(config, str(name), str(file))


def _read_json_object(file: Path) -> dict[str, Any]:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CalibrationError(f"{file}: can't be read as a model's config: {error}") from error
    try:
        config = json.loads(text)
    except json.JSONDecodeError as error:
        raise CalibrationError(f"{file}: not valid JSON: {error}") from error
    if not isinstance(config, dict):
        raise CalibrationError(f"{file}: must hold one JSON object, as a config.json does")
    return config


def _is_built_in(name: str) -> bool:
    return canonical_model_name(name) in read_table("models.json", "models")


def _built_in(name: str) -> ModelSpec:
    table = read_table("models.json", "models")
    short, quantization = _split_quantization(_short_name(name))
    found = find_entry(table, short)
    if found is None:
        raise CalibrationError(
            unknown_name("model", name, table) + "; or give the path of a config.json"
        )
    config = table[found]["config"]
    model = parse_model_config(config, found, f"built-in model {found}")
    return model if quantization is None else _quantised(model, quantization)


def _short_name(name: str) -> str:
    """Return a Hugging Face name without its owner and without what does not change sizes."""
    short = name.strip().lower().rsplit("/", 1)[-1]
    return short.removeprefix("meta-").replace("-instruct", "").removesuffix("-base")


def _split_quantization(short: str) -> tuple[str, str | None]:
    stem, _, last = short.rpartition("-")
    return (stem, last) if last in NAMED else (short, None)


def _quantised(model: ModelSpec, quantization: str) -> ModelSpec:
    method: Quantization | None = NAMED.get(quantization.lower())
    if method is None:
        raise CalibrationError(unknown_name("quantization", quantization, NAMED))
    if model.experts is not None:
        raise CalibrationError(
            f"quantization {quantization!r} was asked for, but {model.source} has experts;"
            " they are used in the checkpoint's own format only"
        )
    if model.quantization is not None and model.quantization.method != method.method:
        raise CalibrationError(
            f"quantization {quantization!r} was asked for, but {model.source}"
            f" is already quantised with {model.quantization.method!r}"
        )
    name = model.name if model.name.endswith(method.method) else f"{model.name}-{method.method}"
    return replace(model, name=name, quantization=model.quantization or method)
