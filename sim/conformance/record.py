"""Has an installed vLLM decide workloads, in an interpreter of its own."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from sim.conformance.cases import Case, ConformanceError

_WORKER = Path(__file__).with_name("vllm_worker.py")


class Recorder:
    """A running interpreter in which vLLM decides. Use as a context manager.

    `python` is the path of a Python that can import vLLM; `scheduler` is `vllm` or a class
    `module:Class` that this Python can import. Raises `ConformanceError` if it cannot be started.
    """

    def __init__(self, python: Path, scheduler: str = "vllm") -> None:
        environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
        try:
            self._process = subprocess.Popen(
                [str(python), str(_WORKER), scheduler],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                encoding="utf-8",
                env=environment,
            )
        except OSError as error:
            raise ConformanceError(f"{python}: cannot be started: {error}") from None
        self.python = python
        greeting = self._read()
        if "error" in greeting:
            self.close()
            raise ConformanceError(f"{python}: {greeting['error']}")
        self.vllm_version = str(greeting["vllm"])

    def record(self, workload: Case) -> Case:
        """The workload with the steps that vLLM took. Raises `ConformanceError` if it failed."""
        stdin = self._process.stdin
        assert stdin is not None
        sent = {key: value for key, value in workload.items() if key != "steps"}
        try:
            stdin.write(json.dumps(sent) + "\n")
            stdin.flush()
        except OSError:
            raise self._gone() from None
        answer = self._read()
        if "error" in answer:
            raise ConformanceError(f"case {workload['name']}: vLLM: {answer['error']}")
        return answer

    def record_all(self, workloads: Iterable[Case]) -> Iterator[Case]:
        """Record one after the other."""
        return (self.record(workload) for workload in workloads)

    def close(self) -> None:
        """End the interpreter."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._gone()
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _gone(self) -> ConformanceError:
        code = self._process.wait()
        return ConformanceError(
            f"{self.python} ended with code {code} before it answered; is it a Python with vLLM?"
        )
