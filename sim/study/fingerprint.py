"""The name of a result: a hash of all that decides it, known before anything is simulated.

A run is a function of the study's keys with every fixed default filled in, of the content of the
files that they name (trace, profile, model, a router of the user's own) and of the code. So these
are hashed; the name of the study is not.
"""

import hashlib
import importlib.util
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from sim.config.schema import StudyFile
from sim.errors import StudyError
from sim.study.code_version import code_version

_BLOCK_BYTES = 1 << 20


def fingerprint(file: StudyFile, extra: object = None) -> str:
    """64 hexadecimal digits; `extra` is whatever else decides the figures, as JSON values.

    Raises:
        StudyError: a file that the study names can't be read.
    """
    keys = file.model_dump(exclude={"name", "provenance"})
    parts = {"study": keys, "files": _file_hashes(file), "code": code_version(), "extra": extra}
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _file_hashes(file: StudyFile) -> dict[str, str]:
    named: dict[str, Any] = {
        "trace.path": file.trace.path,
        "cost_model.path": getattr(file.cost_model, "path", None),
        "model": file.model if "/" in file.model and Path(file.model).exists() else None,
        "router": _router_source(file.router),
    }
    return {key: _hash_of(key, Path(path)) for key, path in named.items() if path is not None}


def _router_source(router: str) -> str | None:
    """The file of a router given as module:name."""
    module, colon, _ = router.partition(":")
    if not colon:
        return None
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None  # resolving the study says so in better words
    return spec.origin if spec is not None and spec.has_location else None


def _hash_of(key: str, path: Path) -> str:
    files = [path] if not path.is_dir() else sorted(p for p in path.iterdir() if p.is_file())
    try:
        return " ".join(_file_sha256(f, (s := f.stat()).st_size, s.st_mtime_ns) for f in files)
    except OSError as error:
        raise StudyError(f"{key}: {path} can't be read ({error.strerror})") from error


@lru_cache(maxsize=64)
def _file_sha256(path: Path, _size: int, _mtime_ns: int) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()
