"""Which code made a result: a result kept from other code is not used again."""

import hashlib
from functools import cache
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

_PACKAGES = ("sim", "policies", "traces", "calibration")
_SUFFIXES = frozenset({".py", ".json", ".yaml", ".jsonl"})
_NO_EFFECT = ("cli", "plots")  # rooms of sim that draw and print; no figure comes from them


@cache
def code_version() -> str:
    """Versions of headway, numpy and simpy, and a hash of the source files in use."""
    digest = hashlib.sha256()
    for name in _PACKAGES:
        root = Path(str(import_module(name).__file__)).parent
        for path in sorted(root.rglob("*")):
            inside = path.relative_to(root)
            if path.suffix in _SUFFIXES and not (name == "sim" and inside.parts[0] in _NO_EFFECT):
                digest.update(f"{name}/{inside.as_posix()}\0".encode())
                digest.update(hashlib.sha256(path.read_bytes()).digest())
    versions = " ".join(f"{name}-{version(name)}" for name in ("headway", "numpy", "simpy"))
    return f"{versions} source-{digest.hexdigest()[:16]}"
