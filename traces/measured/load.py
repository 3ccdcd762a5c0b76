"""From a load-test result file to `Measured`, its tool found by content."""

from __future__ import annotations

import os
from collections.abc import Iterator

from traces.columns import ColumnNames
from traces.errors import TraceError
from traces.files import Head, InputFile
from traces.json_document import document, looks_like
from traces.json_rows import Record, read_records, score_jsonl
from traces.measured import aiperf, guidellm, llmservingsim_bench, vllm_bench
from traces.measured.results import Measured
from traces.rows import BadRows

AIPERF_NAMES = ColumnNames(("metadata", "metrics"), ("error", "trace_data"))
_LEAST_SCORE = 0.5


def score_vllm_bench(head: Head) -> float:
    """1 for a detailed result, 0.9 for one that lacks the details."""
    detailed = looks_like(head, "input_lens", "completed", "request_throughput")
    return max(detailed, 0.9 * looks_like(head, "completed", "request_throughput"))


def score_aiperf(head: Head) -> float:
    """Share of the keys of a record."""
    return score_jsonl(AIPERF_NAMES, head)


def score_guidellm(head: Head) -> float:
    """1 for a document with benchmarks."""
    return looks_like(head, "benchmarks")


def score_llmservingsim_bench(head: Head) -> float:
    """Share of the keys of a record."""
    return score_jsonl(llmservingsim_bench.NAMES, head)


def load_measured(path: str | os.PathLike[str], benchmark: int | None = None) -> Measured:
    """The requests that a load-test tool measured.

    Knows `vllm bench serve` (saved with details), aiperf's profile_export.jsonl, guidellm's
    benchmarks JSON and LLMServingSim's requests.jsonl; .gz and .zst too. A guidellm file with
    several benchmarks needs `benchmark`, from 0.

    Raises:
        TraceError: the file is none of these, or is wrong.
    """
    with InputFile(path) as file:
        scores = {
            "vllm": score_vllm_bench(file.head),
            "aiperf": score_aiperf(file.head),
            "guidellm": score_guidellm(file.head),
            "llmservingsim": score_llmservingsim_bench(file.head),
        }
        tool = max(scores, key=lambda name: scores[name])
        if scores[tool] <= _LEAST_SCORE:
            raise TraceError(
                f"{file.path}: no load-test result known; known are vllm bench serve "
                "--save-detailed, aiperf profile_export.jsonl, guidellm JSON, LLMServingSim bench"
            )
        if tool == "guidellm":
            return _one_benchmark(file, benchmark)
        if benchmark is not None:
            raise TraceError(f"{file.path}: only a guidellm file has benchmarks to choose from")
        if tool == "vllm":
            return vllm_bench.parse(file.path, document(file))
        if tool == "aiperf":
            return aiperf.Parser()(file.path, _records(file, AIPERF_NAMES))
        return llmservingsim_bench.parse(file.path, _records(file, llmservingsim_bench.NAMES))


def _one_benchmark(file: InputFile, benchmark: int | None) -> Measured:
    content = document(file)
    number = guidellm.num_benchmarks(content)
    if benchmark is None and number > 1:
        raise TraceError(f"{file.path}: holds {number} benchmarks; choose one, from 0")
    return guidellm.parse(file.path, content, benchmark)


def _records(file: InputFile, names: ColumnNames) -> Iterator[Record]:
    return read_records(file, names, 0, BadRows())
