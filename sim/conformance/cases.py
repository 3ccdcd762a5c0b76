"""Case files: JSON lines, one workload a line, with the decisions taken for it if it was recorded.

The format is described in `sim/scheduler/README.md`.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from sim.errors import StudyError
from sim.scheduler.config import CacheConfig, SchedulerConfig
from sim.scheduler.drafting import drafting_options

Row = dict[str, Any]
Case = dict[str, Any]

_DEFAULT_NUM_BLOCKS = 1000


class ConformanceError(StudyError):
    """A case file, or a case in it, that cannot be replayed or recorded."""


def read_cases(path: Path) -> Iterator[Case]:
    """The cases of a file (plain or .gz). Raises `ConformanceError` naming the line."""
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield _parse_case(path, number, line)
    except (OSError, UnicodeDecodeError, EOFError) as error:
        raise ConformanceError(f"{path}: cannot be read as JSON lines: {error}") from None


def _parse_case(path: Path, number: int, line: str) -> Case:
    try:
        case: Case = json.loads(line)
    except json.JSONDecodeError as error:
        raise ConformanceError(f"{path}, line {number}: not JSON: {error}") from None
    for key, kind in (("name", str), ("config", dict), ("requests", list)):
        if not isinstance(case, dict) or not isinstance(case.get(key), kind):
            raise ConformanceError(
                f"{path}, line {number}: a case needs {key!r} as a {kind.__name__}"
            )
    return case


def write_cases(path: Path, cases: Iterable[Case]) -> None:
    """Write cases, the same cases as the same bytes; a .gz name compresses.

    The file appears at once, complete, or not at all. Raises `ConformanceError`.
    """
    text = "".join(f"{json.dumps(case)}\n" for case in cases).encode()
    data = gzip.compress(text, mtime=0) if path.suffix == ".gz" else text
    temporary = path.with_name(f".{path.name}.part")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise ConformanceError(f"{path}: cannot be written: {error}") from None


def family_of(name: str) -> str:
    """The family of a case: its name up to the first hyphen."""
    return name.split("-", 1)[0]


def make_configs(case_config: Mapping[str, Any]) -> tuple[SchedulerConfig, CacheConfig]:
    """Scheduler and cache options of a case. Raises `TypeError` for an unknown key.

    `speculative_method` and `parallel_drafting` stand for the options that vLLM derives from them.
    """
    options = dict(case_config)
    cache = CacheConfig(
        num_gpu_blocks=options.pop("num_blocks", _DEFAULT_NUM_BLOCKS),
        block_size=options.pop("block_size", 16),
        enable_prefix_caching=options.pop("enable_prefix_caching", True),
    )
    method = options.pop("speculative_method", "ngram")
    parallel = options.pop("parallel_drafting", False)
    num_speculative_tokens = options.get("num_speculative_tokens", 0)
    if num_speculative_tokens:
        options |= drafting_options(method, num_speculative_tokens, parallel=parallel)
    return SchedulerConfig(**options), cache
